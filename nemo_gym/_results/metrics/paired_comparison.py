# SPDX-License-Identifier: Apache-2.0
"""Decide whether one run is better than another. Runs are paired task by task, so that task difficulty cancels out.

The first run is the baseline; every other one is compared with it. Tasks that only one run has, or that differ between
the runs, are reported and excluded.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nemo_gym._results.metrics.describe import are_binary, mean
from nemo_gym._results.metrics.intervals import (
    Interval,
    compute_interval,
    compute_interval_over_tasks,
    compute_t_cdf,
    compute_t_quantile,
)
from nemo_gym._results.metrics.rollout_metrics import ResultsError

_POWER = 0.8
_CONFIDENCE = 0.975
TestName = Literal["mcnemar", "paired_t"]


@dataclass(frozen=True)
class RunRewards:
    """The rewards of every task in one run."""

    path: str
    tasks: Mapping[int, Sequence[float]]
    contents: Mapping[int, bytes]
    """What each task is, if the run says; the agent and the prompt may differ."""
    n_requested: int | None

    @property
    def n_scored(self) -> int:
        return sum(map(len, self.tasks.values()))

    def overall(self) -> Interval:
        binary = all(are_binary(rewards) for rewards in self.tasks.values())
        return compute_interval_over_tasks([*self.tasks.values()], binary=binary)


@dataclass(frozen=True)
class McNemar:
    """The exact test of whether two runs pass equally often; a task counts as passed if half its rollouts pass.

    It needs as many rollouts of a task in one run as in the other: half of two is easier to pass than one of one.
    """

    pass_threshold: float
    only_baseline_passed: int
    only_run_passed: int
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """A run against the baseline, over the tasks that both have. Differences are run minus baseline."""

    baseline: str
    run: str
    n_paired: int
    baseline_mean: float
    run_mean: float
    difference: float
    ci95: tuple[float, float] | None
    ci95_method: str
    """`t`, or `agresti_min_t` for rewards of 0 and 1."""
    stderr: float | None
    wins: int
    losses: int
    ties: int
    mcnemar: McNemar | None
    """None if `test` is another one."""
    test: TestName
    test_reason: str
    """Why it is this test."""
    p_value: float | None
    """How likely a difference this large is by chance; None for a single task, unless the test is McNemar's."""
    minimum_detectable_effect: float | None
    """The true difference that this many tasks would detect with a probability of 80 %."""
    only_in_baseline: tuple[int, ...]
    only_in_run: tuple[int, ...]
    different_tasks: tuple[int, ...]
    """Tasks with the same index whose fields differ."""


def compute_mcnemar_p(only_first: int, only_second: int) -> float:
    """Return the two-sided probability of a split this uneven if both sides were equally likely."""
    n = only_first + only_second
    fewer = min(only_first, only_second)
    ways = 1
    total = 1
    for i in range(1, fewer + 1):
        ways = ways * (n - i + 1) // i
        total += ways
    return min(1.0, 2 * total / (1 << n))


def compute_paired_p(differences: Interval) -> float | None:
    """Return the two-sided p-value of Student's paired test: could the mean of the differences of tasks be 0?"""
    if differences.stderr is None:
        return None
    if differences.estimate == 0.0:
        return 1.0
    if differences.stderr == 0.0:
        # Without any spread t is infinite; that all tasks have the same sign is as likely as that many equal coins.
        return 0.5 ** (differences.n_tasks - 1)
    t = abs(differences.estimate) / differences.stderr
    return 2 * (1 - compute_t_cdf(t, differences.n_tasks - 1))


def compute_difference_bounds(differences: Sequence[float], outcomes: int | None) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean difference; None for a single task, or without spread.

    `outcomes` means that they are differences of pass rates, each of at least so many rollouts. Then two tasks are
    added that differ by chance alone, as Agresti and Min do: a few equal tasks do not prove that all are.
    """
    n = len(differences)
    if n == 1:
        return None
    if outcomes is None:
        interval = compute_interval(differences)
        if interval.low is None or interval.high is None:
            return None
        return interval.low, interval.high
    center = sum(differences) / (n + 2)
    squares = sum(value * value for value in differences) + 1 / outcomes - (n + 2) * center * center
    reach = compute_t_quantile(_CONFIDENCE, n - 1) * math.sqrt(squares) / (n + 2)
    return max(center - reach, -1.0), min(center + reach, 1.0)


def compare_rewards(baseline: RunRewards, run: RunRewards, pass_threshold: float | None = None) -> Comparison:
    """Compare a run with the baseline over their common tasks; raise ResultsError if there are none."""
    shared = sorted(baseline.tasks.keys() & run.tasks.keys())
    known = baseline.contents.keys() & run.contents.keys()
    different = {task for task in shared if task in known and baseline.contents[task] != run.contents[task]}
    paired = [task for task in shared if task not in different]
    if not paired:
        raise ResultsError(
            f"{baseline.path!r} and {run.path!r} have no task in common ({len(different)} indices stand for different "
            f"tasks).\nhint: compare runs over the same input file"
        )
    before, after = ([mean(one.tasks[task]) for task in paired] for one in (baseline, run))
    differences = [second - first for first, second in zip(before, after, strict=True)]
    interval = compute_interval(differences)
    detectable = None
    if interval.stderr is not None:
        df = len(paired) - 1
        detectable = (compute_t_quantile(_CONFIDENCE, df) + compute_t_quantile(_POWER, df)) * interval.stderr
    pairs = [(baseline.tasks[task], run.tasks[task]) for task in paired]
    binary = all(are_binary(rewards) for pair in pairs for rewards in pair)
    fewest = min(len(rewards) for pair in pairs for rewards in pair)
    if binary:
        bounds = compute_difference_bounds(differences, fewest)
        method = "agresti_min_t"
    else:
        bounds = compute_difference_bounds(differences, None)
        method = "t"
    mcnemar, reason = _test_passes(pairs, pass_threshold)
    test: TestName
    if mcnemar is None:
        p_value = compute_paired_p(interval)
        test = "paired_t"
    else:
        p_value = mcnemar.p_value
        test = "mcnemar"
    return Comparison(
        baseline=baseline.path,
        run=run.path,
        n_paired=len(paired),
        baseline_mean=mean(before),
        run_mean=mean(after),
        difference=interval.estimate,
        ci95=bounds,
        ci95_method=method,
        stderr=interval.stderr,
        wins=sum(value > 0 for value in differences),
        losses=sum(value < 0 for value in differences),
        ties=differences.count(0),
        mcnemar=mcnemar,
        test=test,
        test_reason=reason,
        p_value=p_value,
        minimum_detectable_effect=detectable,
        only_in_baseline=tuple(sorted(baseline.tasks.keys() - run.tasks.keys())),
        only_in_run=tuple(sorted(run.tasks.keys() - baseline.tasks.keys())),
        different_tasks=tuple(sorted(different)),
    )


def _test_passes(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], threshold: float | None
) -> tuple[McNemar | None, str]:
    """Return McNemar's test, if it holds for these tasks, and why it does or does not."""
    if threshold is None:
        if not all(are_binary(rewards) for pair in pairs for rewards in pair):
            return None, "rewards are not pass or fail, and no threshold was given"
        threshold = 1.0
    unequal = sum(len(before) != len(after) for before, after in pairs)
    if unequal:
        return None, f"the runs have different numbers of rollouts of {unequal} of {len(pairs)} tasks"
    passed = [
        tuple(2 * sum(reward >= threshold for reward in rewards) >= len(rewards) for rewards in pair) for pair in pairs
    ]
    only_baseline = passed.count((True, False))
    only_run = passed.count((False, True))
    test = McNemar(threshold, only_baseline, only_run, compute_mcnemar_p(only_baseline, only_run))
    return test, "every task passes or fails, with as many rollouts in both runs"
