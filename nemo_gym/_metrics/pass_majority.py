# SPDX-License-Identifier: Apache-2.0
"""pass@k, pass@1[avg-of-k] and majority@k over the tasks of a run, in percent.

`k` counts the first k runs of a task in the order given. A task that has fewer than k does not take part in that k, and
a rollout without a finite value for a score does not take part in that score.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym._metrics.describe import Number, finite, is_broken, mean, warn_of_broken
from nemo_gym._metrics.pass_at_k import Curve, average_curve, majority_curve, pass_curve, spread_curve
from nemo_gym._util.row_keys import REWARD_KEY_NAME

Rollout = Mapping[str, Any]
Scores = dict[str, Any]
ScoreFn = Callable[[dict[str, Any]], Mapping[str, Any]]

NO_ANSWER = "no_answer"
PER_SAMPLE_AGGREGATE = "per_sample_aggregate"
STD_DEV_ACROSS_RUNS = "std_dev_across_runs"
STD_ERR_ACROSS_RUNS = "std_err_across_runs"
AVG_SAMPLE_STD_DEV = "avg_sample_std_dev"
N_SCORED, N_TASKS = "n_scored", "n_tasks"
"""How much a metric rests on: `<subset>/n_scored` and `<subset>/n_tasks`, or `n_scored/<metric>` for it alone."""


@dataclass(frozen=True)
class PassMajority:
    """All metrics of a run, and what they were computed from."""

    metrics: dict[str, Any]
    scores: list[list[Scores]]
    score_names: list[str]
    max_k: int


@dataclass(frozen=True)
class _Series:
    """The values of one score for the runs of one task, with the answer that each run gave."""

    values: list[Number]
    answers: list[object]


def pass_majority(
    tasks: Sequence[Sequence[dict[str, Any]]], score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> PassMajority:
    """The metrics of `tasks`, a list of runs per task; `score_fn` gives the scores of a run, else its reward counts."""
    score = score_fn or _reward_as_accuracy
    scores = [[_scores_of(rollout, score, answer_key) for rollout in task] for task in tasks]
    names = list(dict.fromkeys(name for task in scores for one in task for name in one))
    max_k = max((len(task) for task in tasks), default=0)
    answers = [[rollout.get(answer_key) if answer_key else None for rollout in task] for task in tasks]
    series = _series_by_name(scores, answers, names)

    metrics: dict[str, Any] = {}
    for name in names:
        runs = [one.values for one in series[name]]
        _add_curves(metrics, "pass@{k}", name, map(pass_curve, runs))
        _add_curves(metrics, "pass@1[avg-of-{k}]", name, map(average_curve, runs))
        if answer_key:
            majorities = (majority_curve(one.answers, one.values) for one in series[name])
            _add_curves(metrics, "majority@{k}", name, majorities)
    if names:
        metrics[PER_SAMPLE_AGGREGATE] = {name: _mean_over_tasks(one.values for one in series[name]) for name in names}
        for name, per_run in metrics[PER_SAMPLE_AGGREGATE].items():
            _add_spread_across_runs(metrics, name, per_run)
    return PassMajority(metrics, scores, names, max_k)


def avg_sample_std_dev(scores: Sequence[Sequence[Scores]], names: Sequence[str], max_k: int) -> dict[str, float]:
    """`pass@1[avg-of-k]/<score>/avg_sample_std_dev` for k >= 2: the spread within a task, averaged over tasks."""
    metrics: dict[str, float] = {}
    for name in names:
        values = [[value for one in task if (value := finite(one.get(name))) is not None] for task in scores]
        means = _mean_over_tasks(map(spread_curve, values))
        for k in range(2, min(max_k, len(means)) + 1):
            metrics[f"pass@1[avg-of-{k}]/{name}/{AVG_SAMPLE_STD_DEV}"] = means[k - 1]
    return metrics


def subset_metrics(
    tasks: Sequence[Sequence[dict[str, Any]]],
    subset_key: str,
    score_fn: ScoreFn | None = None,
    answer_key: str | None = None,
) -> dict[str, Any]:
    """Return the metrics of every subset, as `<subset>/<metric>`, and how many rollouts and tasks they rest on.

    A task belongs to the subset that its first run names; subsets are in order of appearance. All values are numbers:
    servers add them up.
    """
    subsets: dict[str, list[Sequence[dict[str, Any]]]] = {}
    for task in tasks:
        if task and (subset := task[0].get(subset_key)):
            subsets.setdefault(str(subset), []).append(task)
    metrics: dict[str, Any] = {}
    for subset, of_subset in subsets.items():
        sizes = {N_SCORED: sum(map(len, of_subset)), N_TASKS: len(of_subset)}
        computed = pass_majority(of_subset, score_fn, answer_key).metrics
        computed.pop(PER_SAMPLE_AGGREGATE, None)
        metrics |= {f"{subset}/{name}": value for name, value in {**computed, **sizes}.items()}
    return metrics


def mean_rewards_by(tasks: Sequence[Sequence[dict[str, Any]]], category_key: str) -> dict[str, Any]:
    """Return the mean reward of every category, as `mean/reward/<category>`, and how many rollouts it rests on.

    Every task of a category counts alike. A task belongs to the category that its first rollout carries.
    """
    categories: dict[str, list[list[float]]] = {}
    for task in tasks:
        if task and task[0].get(category_key) is not None:
            categories.setdefault(str(task[0][category_key]), []).append([rollout["reward"] for rollout in task])
    metrics: dict[str, Any] = {}
    for category, rewards in sorted(categories.items()):
        name = f"mean/reward/{category}"
        metrics[name] = sum(sum(of_task) / len(of_task) for of_task in rewards) / len(rewards)
        metrics[f"{N_SCORED}/{name}"] = sum(map(len, rewards))
    return metrics


def _reward_as_accuracy(rollout: Rollout) -> Scores:
    return {"accuracy": rollout.get(REWARD_KEY_NAME)}


def _scores_of(rollout: dict[str, Any], score_fn: ScoreFn, answer_key: str | None) -> Scores:
    scores = dict(score_fn(rollout))
    if answer_key:
        scores[NO_ANSWER] = float(rollout.get(answer_key) is None)
    return scores


def _series_by_name(
    scores: list[list[Scores]], answers: list[list[object]], names: list[str]
) -> dict[str, list[_Series]]:
    broken: Counter[str] = Counter()
    result: dict[str, list[_Series]] = {name: [] for name in names}
    for task_scores, task_answers in zip(scores, answers, strict=True):
        for name in names:
            series = _Series([], [])
            for one, answer in zip(task_scores, task_answers, strict=True):
                value = finite(one.get(name))
                if value is not None:
                    series.values.append(value)
                    series.answers.append(answer)
                elif is_broken(one.get(name)):
                    broken[name] += 1
            result[name].append(series)
    warn_of_broken(broken)
    return result


def _add_curves(metrics: dict[str, Any], pattern: str, name: str, curves: Iterable[Curve]) -> None:
    for k, value in enumerate(_mean_over_tasks(curves), 1):
        metrics[f"{pattern.format(k=k)}/{name}"] = value


def _add_spread_across_runs(metrics: dict[str, Any], name: str, per_run: Sequence[float]) -> None:
    for k, spread in enumerate(spread_curve(per_run), 1):
        if k >= 2:
            key = f"pass@1[avg-of-{k}]/{name}"
            metrics[f"{key}/{STD_DEV_ACROSS_RUNS}"] = spread
            metrics[f"{key}/{STD_ERR_ACROSS_RUNS}"] = spread / math.sqrt(k)


def _mean_over_tasks(curves: Iterable[Curve]) -> list[float]:
    """Element by element, in percent, over the curves that are long enough."""
    longest_first = sorted(curves, key=len, reverse=True)
    means = []
    for index in range(len(longest_first[0]) if longest_first else 0):
        while len(longest_first[-1]) <= index:
            longest_first.pop()
        means.append(100.0 * mean([curve[index] for curve in longest_first]))
    return means
