# SPDX-License-Identifier: Apache-2.0
"""The table of a run and its intervals, against a second implementation that is plain and slow."""

import math
from itertools import combinations
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, lists, sampled_from

from nemo_gym._results.aggregate_files import Requested, aggregate_rollouts, make_metric_table
from nemo_gym._results.result_rows import AgentRollouts
from tests.support.measured import make_rollout

STEPS = 4000


def share_within(reach, df):
    """The probability that a t-distributed variable is within ± `reach`, by Simpson's rule."""
    front = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    width = reach / STEPS
    weights = (1 if step in (0, STEPS) else 4 if step % 2 else 2 for step in range(STEPS + 1))
    heights = ((1 + (step * width) ** 2 / df) ** (-(df + 1) / 2) for step in range(STEPS + 1))
    return 2 * front * width / 3 * sum(weight * height for weight, height in zip(weights, heights, strict=True))


def exact_bounds(per_task):
    """Where all tasks passed, or none did: what so many equal outcomes leave open."""
    edge = 0.025 ** (1 / len(per_task))
    return {(0.0,): [0.0, 1.0 - edge], (1.0,): [edge, 1.0]}.get(tuple(set(per_task)))


def pass_at(k, rewards):
    """The share of all choices of k rollouts that hold a pass; for other rewards than 0 and 1 the best of the first."""
    if set(rewards) <= {0, 1}:
        return fmean(max(chosen) for chosen in combinations(rewards, k))
    return max(rewards[:k])


def require_equal(shown, per_task, scale, *, binary):
    n, estimate = len(per_task), fmean(per_task)
    assert (shown["estimate"], shown["n_tasks"]) == (pytest.approx(scale * estimate), n)
    error = stdev(per_task) / math.sqrt(n) if n > 1 else None
    assert shown["stderr"] == (None if error is None else pytest.approx(scale * error, abs=1e-9))
    exact = exact_bounds(per_task) if binary else None
    if exact:
        assert shown["ci95"] == pytest.approx([scale * bound for bound in exact])
    elif error is None or (error < 1e-9 and not binary):
        assert shown["ci95"] is None
        assert shown["no_interval"] == ("one task" if n == 1 else "no spread seen")
    else:
        for bound, side in zip(shown["ci95"], (-1, 1), strict=True):
            distance = side * (bound / scale - estimate)
            if binary:
                # Wilson's: a bound is a mean from which the estimate is as far as chance allows.
                middle = (n * estimate + 0.5) / (n + 1)
                variance = (error**2 * n * (n - 1) + 2 * middle * (1 - middle)) / (n + 1)
                outcomes = estimate * (1 - estimate) / (variance / n)
                error_there = math.sqrt(bound / scale * (1 - bound / scale) / outcomes)
                assert share_within(distance / error_there, n - 1) == pytest.approx(0.95, abs=1e-6)
            else:
                assert share_within(distance / error, n - 1) == pytest.approx(0.95, abs=1e-6)


RUNS = lists(sampled_from([0.0, 1.0]), min_size=1, max_size=4)
SCORED = lists(sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=4)


@given(lists(RUNS, min_size=1, max_size=8) | lists(SCORED, min_size=1, max_size=8), booleans())
@settings(max_examples=40, deadline=None)
def test_every_interval_is_the_one_of_a_plain_implementation(tasks, whole):
    runs = [
        make_rollout((t, r), {"reward": int(reward) if whole and reward in (0, 1) else reward})
        for t, task in enumerate(tasks)
        for r, reward in enumerate(task)
    ]
    requested = Requested({"a": len(runs) + 1})
    [aggregate] = aggregate_rollouts([AgentRollouts("a", runs)], requested=requested)
    binary = all(reward in (0, 1) for task in tasks for reward in task)
    confidence = aggregate.confidence
    require_equal(confidence["mean_over_tasks/reward"], [fmean(task) for task in tasks], 1.0, binary=binary)
    assert confidence["mean/reward"]["estimate"] == pytest.approx(aggregate.agent_metrics["mean/reward"])
    if len({*map(len, tasks)}) == 1:
        assert confidence["mean/reward"]["ci95"] == confidence["mean_over_tasks/reward"]["ci95"]
    most = max(map(len, tasks))
    score, scale = ("accuracy", 100.0) if binary else ("reward", 1.0)
    for k in range(1, most + 1):
        long_enough = [task for task in tasks if len(task) >= k]
        passes = [pass_at(k, task) for task in long_enough]
        require_equal(confidence[f"pass@{k}/{score}"], passes, scale, binary=binary)
        averages = [fmean(task[:k]) for task in long_enough]
        require_equal(confidence[f"pass@1[avg-of-{k}]/{score}"], averages, scale, binary=binary)
    assert len(confidence) == 2 + 2 * most

    _, *rows = make_metric_table([aggregate])
    names = ["mean/reward", f"pass@{most}/{score}", f"pass@1[avg-of-{most}]/{score}"]
    assert [row[:2] for row in rows] == [["a", name] for name in names]
    for name, (_, _, value, bounds, n_tasks, scored) in zip(names, rows, strict=True):
        covered = [task for task in tasks if name == "mean/reward" or len(task) >= most]
        assert n_tasks == f"{len(covered)} of {len(tasks)}"
        assert scored == f"{sum(map(len, covered))} of {len(runs) + 1}"
        assert float(value) == pytest.approx(confidence[name]["estimate"], rel=1e-3)
        shown = [float(bound) for bound in bounds.split(" … ")] if " … " in bounds else None
        expected = confidence[name]["ci95"]
        assert shown == (None if expected is None else pytest.approx(expected, rel=1e-3))
