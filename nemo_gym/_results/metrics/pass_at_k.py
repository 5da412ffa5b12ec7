# SPDX-License-Identifier: Apache-2.0
"""pass@k, pass@1[avg-of-k] and majority@k over the tasks of a run, for every k at once; in percent, as a rule.

`k` counts the first k rollouts of a task in the given order. A task with fewer than k rollouts is left out of that k,
and a rollout without a finite value for a score is left out of that score. A *curve* holds the results of one task for
its first k rollouts: element k - 1 belongs to k. A *column* holds the values of all tasks for one k.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import orjson

from nemo_gym._results.metrics.describe import (
    Number,
    are_binary,
    choose_unit,
    is_broken,
    mean,
    to_finite,
    warn_of_broken,
)
from nemo_gym._util.row_keys import REWARD_KEY_NAME

Curve = Sequence[float]
Column = Sequence[float]
Scores = dict[str, Any]
ScoreFn = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Returns the scores of one rollout, by name."""

ACCURACY = "accuracy"
NO_ANSWER = "no_answer"
PASS = "pass@{k}"
AVERAGE = "pass@1[avg-of-{k}]"
MAJORITY = "majority@{k}"
PER_SAMPLE_AGGREGATE = "per_sample_aggregate"
STD_DEV_ACROSS_RUNS = "std_dev_across_runs"
STD_ERR_ACROSS_RUNS = "std_err_across_runs"
AVG_SAMPLE_STD_DEV = "avg_sample_std_dev"
N_SCORED = "n_scored"
N_TASKS = "n_tasks"
"""The number of rollouts or tasks behind a metric: `<subset>/n_scored`, `<subset>/n_tasks`, or `n_scored/<metric>`."""
PERCENT = 100.0
_SPREADS = tuple(f"/{name}" for name in (STD_DEV_ACROSS_RUNS, STD_ERR_ACROSS_RUNS, AVG_SAMPLE_STD_DEV))


class TaskScores(NamedTuple):
    """The values of one score for the rollouts of every task, with their answers if known."""

    values: Sequence[Sequence[Number]]
    answers: Sequence[Sequence[object]] | None = None
    scale: float = PERCENT
    """What its metrics are multiplied by."""

    @property
    def is_binary(self) -> bool:
        """Whether all values are 0 or 1."""
        return all(map(are_binary, self.values))


class PassMetrics(NamedTuple):
    """Metrics, scaled as their scores say, and for each mean over tasks the column it is the mean of."""

    metrics: dict[str, Any]
    columns: dict[str, Column]


@dataclass(frozen=True)
class PassMajority:
    """All metrics of a run, and what they were computed from."""

    metrics: dict[str, Any]
    scores: list[list[Scores]]
    score_names: list[str]
    max_k: int


def compute_pass_majority(
    tasks: Sequence[Sequence[dict[str, Any]]], score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> PassMajority:
    """Return the metrics of `tasks`, a list of rollouts per task; `score_fn` returns the scores of a rollout.

    By default, the reward is the score.
    """
    score = score_fn or (lambda rollout: {ACCURACY: rollout.get(REWARD_KEY_NAME)})
    scores: list[list[Scores]] = []
    for task in tasks:
        scores.append([dict(score(rollout)) for rollout in task])
        if answer_key:
            for rollout, named in zip(task, scores[-1], strict=True):
                named[NO_ANSWER] = float(rollout.get(answer_key) is None)
    names = list(dict.fromkeys(name for task in scores for one in task for name in one))
    answers = [[rollout.get(answer_key) for rollout in task] for task in tasks] if answer_key else None
    broken: Counter[str] = Counter()
    measured = {name: select_score(name, scores, answers, broken) for name in names}
    warn_of_broken(broken)
    metrics = compute_pass_metrics(measured).metrics
    return PassMajority(metrics, scores, names, max_k=max(map(len, tasks), default=0))


def compute_pass_metrics(scores: Mapping[str, TaskScores]) -> PassMetrics:
    """Return the metrics of every score, by name."""
    found = PassMetrics({}, {})
    for name, score in scores.items():
        columns = {
            PASS: _transpose(map(compute_pass_curve, score.values)),
            AVERAGE: _transpose(map(compute_average_curve, score.values)),
        }
        if score.answers is not None:
            columns[MAJORITY] = _transpose(map(compute_majority_curve, score.answers, score.values))
        for pattern, by_k in columns.items():
            named = {name_metric(pattern, k, name): column for k, column in enumerate(by_k, 1)}
            found.columns.update(named)
            found.metrics.update({label: score.scale * mean(column) for label, column in named.items()})
    if scores:
        per_sample = {name: average_curves(score.values, score.scale) for name, score in scores.items()}
        found.metrics[PER_SAMPLE_AGGREGATE] = per_sample
        for name, per_run in per_sample.items():
            for k, spread in [*enumerate(compute_spread_curve(per_run), 1)][1:]:
                label = name_metric(AVERAGE, k, name)
                found.metrics[f"{label}/{STD_DEV_ACROSS_RUNS}"] = spread
                found.metrics[f"{label}/{STD_ERR_ACROSS_RUNS}"] = spread / math.sqrt(k)
    return found


def score_rewards(
    rewards: Sequence[Sequence[Number]], answers: Sequence[Sequence[object]] | None = None
) -> dict[str, TaskScores]:
    """Return the rewards of every task as a score and, if answers are known, another score for giving none.

    Rewards of 0 and 1 are an accuracy in percent; others keep their name and their scale.
    """
    if all(map(are_binary, rewards)):
        scores = {ACCURACY: TaskScores(rewards, answers)}
    else:
        scores = {REWARD_KEY_NAME: TaskScores(rewards, answers, scale=1.0)}
    if answers is not None:
        scores[NO_ANSWER] = TaskScores([[float(answer is None) for answer in one] for one in answers], answers)
    return scores


def name_metric(pattern: str, k: int, name: str) -> str:
    """Return the name of a metric, such as `pass@4/accuracy`."""
    return f"{pattern.format(k=k)}/{name}"


def select_means(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return every `mean/<field>`."""
    return {name: value for name, value in metrics.items() if name.startswith("mean/")}


def select_highest_k(
    metrics: Mapping[str, Any],
    pattern: str,
    score_names: Collection[str] | None = None,
    exclude_names: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the metrics `<pattern>/<score>` of the highest k that occurs.

    Without `score_names`, return all scores but not their spreads across runs or samples; ask for these by name, as in
    `"accuracy/std_dev_across_runs"`.
    """
    before, placeholder, after = pattern.partition("{k}")
    if not placeholder:
        raise ValueError(f"the pattern {pattern!r} has no place for k.\nhint: write it as in 'pass@{{k}}'")
    key = re.compile(rf"{re.escape(before)}(\d+){re.escape(after)}/(.+)", re.DOTALL)
    found: dict[int, dict[str, Any]] = {}
    for name, value in metrics.items():
        match = key.fullmatch(name)
        if not match or match[2] in (exclude_names or ()):
            continue
        if score_names is None:
            is_wanted = not match[2].endswith(_SPREADS)
        else:
            is_wanted = match[2] in score_names
        if is_wanted:
            found.setdefault(int(match[1]), {})[name] = value
    return found[max(found)] if found else {}


def compute_pass_curve(scores: Sequence[Number]) -> Curve:
    """Return pass@k: the unbiased 1 - C(wrong, k)/C(n, k) for scores of 0 and 1, else the best of the first k."""
    wrong = scores.count(0)
    if wrong + scores.count(1) == len(scores):
        return _estimate_curve(wrong, len(scores))
    return [float(best) for best in accumulate(scores, max)]


def compute_average_curve(scores: Sequence[Number]) -> Curve:
    """Return pass@1[avg-of-k]: the mean of the first k."""
    curve = [total / k for k, total in enumerate(accumulate(scores), 1)]
    if not curve or math.isfinite(curve[-1]):
        return curve
    return [mean(scores[:k]) for k in range(1, len(scores) + 1)]  # their sum would overflow


def compute_majority_curve(answers: Sequence[object], scores: Sequence[Number]) -> Curve:
    """Return majority@k: the score of the most common (answer, score) pair of the first k; None is no answer.

    Equally common pairs are averaged; without any answer the score is 0.
    """
    curve: list[float] = []
    counts: Counter[tuple[Hashable, Number]] = Counter()
    most = 0
    leaders = 1
    total = 0.0  # count of the most common pairs, how many there are, the sum of their scores
    for answer, score in zip(answers, scores, strict=True):
        if answer is not None:
            pair = (_make_hashable(answer), score)
            counts[pair] += 1
            if counts[pair] > most:
                most = counts[pair]
                leaders = 1
                total = score
            elif counts[pair] == most:
                leaders = leaders + 1
                total = total + score
        curve.append(total / leaders)
    return curve


def compute_spread_curve(scores: Sequence[Number]) -> Curve:
    """Return the sample standard deviation of the first k; 0 for k = 1."""
    curve: list[float] = []
    center = 0.0
    squares = 0.0
    unit = choose_unit(scores) if scores else 1.0
    for k, score in enumerate(scores, 1):
        # Welford's update: one pass, and no difference of two large sums.
        step = score / unit - center
        center += step / k
        squares += step * (score / unit - center)
        curve.append(math.sqrt(squares / (k - 1)) * unit if k > 1 else 0.0)
    return curve


@functools.lru_cache(maxsize=1024)
def _estimate_curve(wrong: int, n: int) -> tuple[float, ...]:
    curve = []
    all_wrong = 1
    all_ways = 1  # C(wrong, k) and C(n, k), exact
    for k in range(1, n + 1):
        all_wrong = all_wrong * max(wrong - k + 1, 0) // k
        all_ways = all_ways * (n - k + 1) // k
        curve.append((all_ways - all_wrong) / all_ways)
    return tuple(curve)


def _make_hashable(answer: object) -> Hashable:
    # Compare grids and other JSON answers by content.
    if isinstance(answer, (list, dict)):
        return orjson.dumps(answer, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr)
    return answer if isinstance(answer, Hashable) else repr(answer)


def select_score(
    name: str,
    scores: Sequence[Sequence[Scores]],
    answers: list[list[object]] | None = None,
    broken: Counter[str] | None = None,
) -> TaskScores:
    """Return the finite values of one score with the answers of the same rollouts; count the broken ones."""
    values = list[list[Number]]()
    kept = list[list[object]]()
    for index, task in enumerate(scores):
        found = [(place, value) for place, one in enumerate(task) if (value := to_finite(one.get(name))) is not None]
        values.append([value for _, value in found])
        if answers is not None:
            kept.append([answers[index][place] for place, _ in found])
        if broken is not None:
            broken.update(name for one in task if is_broken(one.get(name)))
    return TaskScores(values, None if answers is None else kept)


def average_curves(curves: Iterable[Curve], scale: float = PERCENT) -> list[float]:
    """Return the mean over tasks for k = 1, 2, …, in percent unless another scale is given."""
    return [scale * mean(column) for column in _transpose(curves)]


def _transpose(curves: Iterable[Curve]) -> list[Column]:
    """Return the values for k = 1, 2, …, each of every task with at least k rollouts."""
    return [[value for value in column if value is not None] for column in zip_longest(*curves)]
