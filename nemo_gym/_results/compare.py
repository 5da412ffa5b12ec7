# SPDX-License-Identifier: Apache-2.0
"""Is one run better than another? Both are paired task by task, so that what makes tasks hard cancels out.

The first run is the baseline; every other is compared with it. Tasks that only one run has, or that are not the same
task in both, are reported and take no part.
"""

import hashlib
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from nemo_gym._metrics.describe import mean
from nemo_gym._results.intervals import Interval, interval_of_mean, t_quantile
from nemo_gym._results.rows import ResultsError, count_of, planned_lines
from nemo_gym._results.runs import are_binary, read_runs, rewards_of
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.types import Row
from nemo_gym._util.row_keys import (
    BOOKKEEPING_PREFIX,
    PLAYER_KEYS,
)

SCHEMA = 1
RESAMPLES = 10_000
# Beyond this many tasks the mean is normal for all purposes, and resampling only costs time.
_MOST_RESAMPLED = 2_000
_POWER = 0.8
_CONFIDENCE = 0.975


@dataclass(frozen=True)
class RunRewards:
    """One run: the rewards of every task."""

    path: str
    tasks: Mapping[int, Sequence[float]]
    contents: Mapping[int, bytes]
    """What each task was, where the run says; who plays it and how it is asked may differ."""
    n_requested: int | None

    @property
    def n_scored(self) -> int:
        return sum(map(len, self.tasks.values()))

    def overall(self) -> Interval:
        binary = all(are_binary(rewards) for rewards in self.tasks.values())
        return interval_of_mean([mean(rewards) for rewards in self.tasks.values()], binary=binary)


@dataclass(frozen=True)
class McNemar:
    """The exact test of whether two runs pass equally often; a task counts as passed if half its rollouts pass."""

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
    """`bootstrap` over tasks, or `t` where there are too many tasks to resample."""
    stderr: float | None
    wins: int
    losses: int
    ties: int
    mcnemar: McNemar | None
    """None where rewards are not pass or fail and no threshold was given."""
    minimum_detectable_effect: float | None
    """The true difference that so many tasks would show with a probability of 80 %."""
    only_in_baseline: tuple[int, ...]
    only_in_run: tuple[int, ...]
    different_tasks: tuple[int, ...]
    """Tasks with the same index whose fields differ."""


@dataclass(frozen=True)
class ComparedRuns:
    runs: list[RunRewards]
    comparisons: list[Comparison]

    def as_json(self) -> dict[str, Any]:
        runs = [
            {"path": run.path, "mean_reward": run.overall().as_json(), "n_scored": run.n_scored}
            | {"n_requested": run.n_requested}
            for run in self.runs
        ]
        return {"schema": SCHEMA, "runs": runs, "comparisons": [asdict(one) for one in self.comparisons]}


def compare(
    paths: Sequence[str | os.PathLike[str]],
    *,
    pass_threshold: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ComparedRuns:
    """Compare the rollouts files of two runs or more, the first being the baseline.

    `pass_threshold`: the reward from which a rollout passes; rewards of 0 and 1 need none.
    """
    if len(paths) < 2:
        raise ResultsError("a comparison needs at least two runs.\nhint: name two rollouts files, the baseline first")
    runs = [read_rewards(path) for path in paths]
    comparisons = [compare_rewards(runs[0], run, pass_threshold, resamples, seed) for run in runs[1:]]
    return ComparedRuns(runs, comparisons)


def read_rewards(path: str | os.PathLike[str]) -> RunRewards:
    """The rewards of a run, and what its tasks were if its materialized inputs lie beside it."""
    tasks: dict[int, Sequence[float]] = {}
    for agent in read_runs([path]):
        for task, runs in agent.tasks():
            tasks[task] = [*tasks.get(task, ()), *rewards_of(runs)]
    if not tasks:
        raise ResultsError(f"{os.fspath(path)!r} holds no scored rollout")
    plan = RunPaths.of(os.fspath(path)).materialized
    contents: dict[int, bytes] = {}
    n_requested = None
    if plan.is_file():
        n_requested = 0
        for _, _, key, row in planned_lines(plan):
            n_requested += 1
            if key[0] not in contents:
                contents[key[0]] = _content(row)
    return RunRewards(os.fspath(path), tasks, contents, n_requested)


def comparison_table(compared: ComparedRuns) -> list[list[str]]:
    """What `compared` says, a row per run; the first row is the heading."""
    rows = [["run", "mean reward", "scored", "difference", "95 % interval", "better/worse/equal", "McNemar p", "MDE"]]
    for run, one in zip(compared.runs, [None, *compared.comparisons], strict=True):
        rows.append([run.path, f"{run.overall().estimate:.4g}", count_of(run.n_scored, run.n_requested)])
        rows[-1] += ["baseline", "", "", "", ""] if one is None else _comparison_cells(one)
    return rows


def _comparison_cells(one: Comparison) -> list[str]:
    return [
        f"{one.difference:+.4g} ({one.n_paired} tasks)",
        "" if one.ci95 is None else f"{one.ci95[0]:+.4g} … {one.ci95[1]:+.4g}",
        f"{one.wins}/{one.losses}/{one.ties}",
        "" if one.mcnemar is None else f"{one.mcnemar.p_value:.3g}",
        "" if one.minimum_detectable_effect is None else f"{one.minimum_detectable_effect:.3g}",
    ]


def mcnemar_p(only_first: int, only_second: int) -> float:
    """The two-sided probability of so uneven a split if both were equally likely."""
    n, fewer = only_first + only_second, min(only_first, only_second)
    ways, total = 1, 1
    for i in range(1, fewer + 1):
        ways = ways * (n - i + 1) // i
        total += ways
    return min(1.0, 2 * total / (1 << n))


def bootstrap_interval(differences: Sequence[float], resamples: int, seed: int) -> tuple[float, float]:
    """The middle 95 % of the means of `resamples` samples of as many tasks, drawn with replacement."""
    draw, n = random.Random(seed).choices, len(differences)
    sums = sorted(sum(draw(differences, k=n)) for _ in range(resamples))
    cut = int((1 - _CONFIDENCE) * resamples)
    return sums[cut] / n, sums[resamples - 1 - cut] / n


def compare_rewards(
    baseline: RunRewards, run: RunRewards, pass_threshold: float | None, resamples: int, seed: int
) -> Comparison:
    shared = sorted(baseline.tasks.keys() & run.tasks.keys())
    different = {task for task in shared if _differs(baseline.contents.get(task), run.contents.get(task))}
    paired = [task for task in shared if task not in different]
    if not paired:
        raise ResultsError(
            f"{baseline.path!r} and {run.path!r} have no task in common ({len(different)} indices stand for different "
            f"tasks).\nhint: compare runs over the same input file"
        )
    before, after = ([mean(one.tasks[task]) for task in paired] for one in (baseline, run))
    differences = [second - first for first, second in zip(before, after, strict=True)]
    interval = interval_of_mean(differences)
    resampled = 1 < len(paired) <= _MOST_RESAMPLED
    return Comparison(
        baseline=baseline.path,
        run=run.path,
        n_paired=len(paired),
        baseline_mean=mean(before),
        run_mean=mean(after),
        difference=interval.estimate,
        ci95=bootstrap_interval(differences, resamples, seed) if resampled else _t_bounds(interval),
        ci95_method="bootstrap" if resampled else "t",
        stderr=interval.stderr,
        wins=sum(value > 0 for value in differences),
        losses=sum(value < 0 for value in differences),
        ties=differences.count(0),
        mcnemar=_mcnemar([(baseline.tasks[task], run.tasks[task]) for task in paired], pass_threshold),
        minimum_detectable_effect=_detectable(interval),
        only_in_baseline=tuple(sorted(baseline.tasks.keys() - run.tasks.keys())),
        only_in_run=tuple(sorted(run.tasks.keys() - baseline.tasks.keys())),
        different_tasks=tuple(sorted(different)),
    )


def _mcnemar(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], threshold: float | None) -> McNemar | None:
    if threshold is None:
        if not all(are_binary(rewards) for pair in pairs for rewards in pair):
            return None
        threshold = 1.0
    passed = [tuple(_passes(rewards, threshold) for rewards in pair) for pair in pairs]
    only_baseline, only_run = passed.count((True, False)), passed.count((False, True))
    return McNemar(threshold, only_baseline, only_run, mcnemar_p(only_baseline, only_run))


def _passes(rewards: Sequence[float], threshold: float) -> bool:
    return 2 * sum(reward >= threshold for reward in rewards) >= len(rewards)


def _t_bounds(interval: Interval) -> tuple[float, float] | None:
    return None if interval.low is None or interval.high is None else (interval.low, interval.high)


def _detectable(interval: Interval) -> float | None:
    if interval.stderr is None:
        return None
    df = interval.n_tasks - 1
    return (t_quantile(_CONFIDENCE, df) + t_quantile(_POWER, df)) * interval.stderr


def _content(row: Row) -> bytes:
    task = {
        name: value
        for name, value in row.items()
        if name not in PLAYER_KEYS and not name.startswith(BOOKKEEPING_PREFIX)
    }
    return hashlib.blake2b(orjson.dumps(task, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _differs(first: bytes | None, second: bytes | None) -> bool:
    return first is not None and second is not None and first != second
