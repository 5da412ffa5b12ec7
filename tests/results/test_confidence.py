# SPDX-License-Identifier: Apache-2.0
"""The table of a run and its intervals, against a second implementation that is plain and slow."""

import math
from itertools import combinations
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, lists, sampled_from

from nemo_gym._results.aggregate import Requested, aggregate_rollouts, make_metric_table
from nemo_gym._results.rows import AgentRollouts
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
    elif error is None:
        assert shown["ci95"] is None
    else:
        for bound, side, limit in zip(shown["ci95"], (-1, 1), (0.0, scale), strict=True):
            if binary and bound == limit:
                assert share_within(abs(limit / scale - estimate) / error, n - 1) <= 0.95 + 1e-6
            elif error:
                assert share_within(side * (bound / scale - estimate) / error, n - 1) == pytest.approx(0.95, abs=1e-6)
            else:
                assert bound == pytest.approx(scale * estimate)


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
    require_equal(confidence["mean/reward"], [fmean(task) for task in tasks], 1.0, binary=binary)
    most = max(map(len, tasks))
    for k in range(1, most + 1):
        long_enough = [task for task in tasks if len(task) >= k]
        passes = [pass_at(k, task) for task in long_enough]
        require_equal(confidence[f"pass@{k}/accuracy"], passes, 100.0, binary=binary)
        averages = [fmean(task[:k]) for task in long_enough]
        require_equal(confidence[f"pass@1[avg-of-{k}]/accuracy"], averages, 100.0, binary=binary)
    assert len(confidence) == 1 + 2 * most

    _, *rows = make_metric_table([aggregate])
    names = ["mean/reward", f"pass@{most}/accuracy", f"pass@1[avg-of-{most}]/accuracy"]
    assert [row[:2] for row in rows] == [["a", name] for name in names]
    for name, (_, _, value, bounds, scored) in zip(names, rows, strict=True):
        assert scored == f"{len(runs)} of {len(runs) + 1}"
        assert float(value) == pytest.approx(confidence[name]["estimate"], rel=1e-3)
        shown = [float(bound) for bound in bounds.split(" … ")] if bounds else None
        expected = confidence[name]["ci95"]
        assert shown == (None if expected is None else pytest.approx(expected, rel=1e-3))
