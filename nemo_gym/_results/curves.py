# SPDX-License-Identifier: Apache-2.0
"""pass@k, pass@1[avg-of-k] and majority@k of the rewards of an agent, in percent, each with its 95 % interval.

The names and values are those of `nemo_gym._metrics.pass_majority` with the reward as `accuracy`; a task with fewer
than k scored rollouts takes no part in that k.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Any

from nemo_gym._metrics.describe import Number, mean
from nemo_gym._metrics.pass_at_k import Curve, average_curve, majority_curve, pass_curve, spread_curve
from nemo_gym._metrics.pass_majority import NO_ANSWER, PER_SAMPLE_AGGREGATE, STD_DEV_ACROSS_RUNS, STD_ERR_ACROSS_RUNS
from nemo_gym._results.intervals import Interval, interval_of_mean

MEAN_REWARD = "mean/reward"
ACCURACY = "accuracy"
_PERCENT = 100.0


@dataclass(frozen=True)
class CurveMetrics:
    metrics: dict[str, Any] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)


def curve_metrics(
    rewards: Sequence[Sequence[Number]], answers: Sequence[Sequence[object]] | None = None, *, binary: bool
) -> CurveMetrics:
    """The metrics of the rewards, and perhaps answers, of the scored rollouts of every task, in order.

    `binary`: all rewards are 0 or 1.
    """
    result = CurveMetrics()
    _add(result, "pass@{k}", ACCURACY, _by_k(map(pass_curve, rewards)), binary)
    _add(result, "pass@1[avg-of-{k}]", ACCURACY, _averages_by_k(rewards), binary)
    per_sample = {ACCURACY: _means(rewards)}
    if answers is not None:
        _add(result, "majority@{k}", ACCURACY, _by_k(map(majority_curve, answers, rewards)), binary)
        missing = [[float(answer is None) for answer in one] for one in answers]
        _add(result, "pass@{k}", NO_ANSWER, _by_k(map(pass_curve, missing)), True)
        _add(result, "pass@1[avg-of-{k}]", NO_ANSWER, _averages_by_k(missing), True)
        _add(result, "majority@{k}", NO_ANSWER, _by_k(map(majority_curve, answers, missing)), True)
        per_sample[NO_ANSWER] = _means(missing)
    result.metrics[PER_SAMPLE_AGGREGATE] = per_sample
    for name, per_run in per_sample.items():
        _add_spread(result.metrics, name, per_run)
    return result


def interval_over_tasks(values: Sequence[Sequence[Number]], *, binary: bool) -> Interval:
    """Return the mean over tasks of their means: every task counts alike, however many of its rollouts were scored."""
    return interval_of_mean([mean(of_task) for of_task in values], binary=binary)


def headline_intervals(rewards: Sequence[Sequence[Number]], *, binary: bool) -> dict[str, Interval]:
    """Return the mean reward, and of the metrics of `curve_metrics` only those of the largest k.

    For those who show nothing else: this costs a fraction of all k.
    """
    k = max(map(len, rewards))
    full = [of_task for of_task in rewards if len(of_task) == k]
    curves = {"pass@{k}": pass_curve, "pass@1[avg-of-{k}]": average_curve}
    return {
        MEAN_REWARD: interval_over_tasks(rewards, binary=binary),
        **{
            f"{pattern.format(k=k)}/{ACCURACY}": interval_of_mean(
                [curve(of_task)[-1] for of_task in full], _PERCENT, binary=binary
            )
            for pattern, curve in curves.items()
        },
    }


def _add(result: CurveMetrics, pattern: str, name: str, by_k: Iterable[Sequence[float]], binary: bool) -> None:
    for k, values in enumerate(by_k, 1):
        label = f"{pattern.format(k=k)}/{name}"
        result.intervals[label] = interval_of_mean(values, _PERCENT, binary=binary)
        result.metrics[label] = result.intervals[label].estimate


def _add_spread(metrics: dict[str, Any], name: str, per_run: Sequence[float]) -> None:
    for k, spread in enumerate(spread_curve(per_run), 1):
        if k >= 2:
            metrics[f"pass@1[avg-of-{k}]/{name}/{STD_DEV_ACROSS_RUNS}"] = spread
            metrics[f"pass@1[avg-of-{k}]/{name}/{STD_ERR_ACROSS_RUNS}"] = spread / math.sqrt(k)


def _means(curves: Iterable[Curve]) -> list[float]:
    return [_PERCENT * mean(values) for values in _by_k(curves)]


def _averages_by_k(scores: Sequence[Sequence[Number]]) -> list[Sequence[float]]:
    """The mean of the first k scores, for k = 1, 2, …: of every task that has so many."""
    if len(set(map(len, scores))) == 1:
        # Where all have equally many, sums of columns are the sums of all tasks at once.
        totals = accumulate(_by_k(scores), lambda total, column: [*map(add, total, column)])
        averages = [[value / k for value in total] for k, total in enumerate(totals, 1)]
        if all(map(math.isfinite, averages[-1])):
            return [*averages]
    return _by_k(map(average_curve, scores))


def _by_k(curves: Iterable[Curve]) -> list[Sequence[float]]:
    """The values for k = 1, 2, …: of every task that has so many rollouts."""
    listed = [*curves]
    if len(set(map(len, listed))) == 1:
        return [*zip(*listed, strict=True)]
    columns: list[list[float]] = []
    for curve in listed:
        while len(columns) < len(curve):
            columns.append([])
        for column, value in zip(columns, curve, strict=False):
            column.append(value)
    return [*columns]
