# SPDX-License-Identifier: Apache-2.0
"""An agent's metrics over its rollouts: those that a server's `/aggregate_metrics` returns, and their confidence.

Works on results alone, without the rows they came from.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from nemo_gym._results.metrics.describe import Number, are_binary, mean
from nemo_gym._results.metrics.intervals import Interval, compute_interval, compute_interval_over_tasks
from nemo_gym._results.metrics.pass_at_k import (
    ACCURACY,
    AVERAGE,
    PASS,
    TaskScores,
    compute_average_curve,
    compute_pass_curve,
    compute_pass_metrics,
    name_metric,
    score_rewards,
    select_means,
)
from nemo_gym._results.metrics.rollout_metrics import (
    MeasuredRollout,
    collect_fields,
    describe_rollouts,
    group_by_task,
    list_rewards,
    measure,
    read_key,
)
from nemo_gym._results.metrics.task_profile import make_entry
from nemo_gym._util.garbage import pause_collections
from nemo_gym._util.masked_rows import has_no_measurement
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME, TASK_INDEX_KEY_NAME

MEAN_REWARD = "mean/reward"
TASK_MEAN_REWARD = "mean_over_tasks/reward"
PER_TASK_METRICS = "per_task_metrics"

Metrics = dict[str, Any]
ComputeMetrics = Callable[[list[list[dict[str, Any]]]], Metrics]
KeyMetrics = Callable[[Metrics], Metrics]
Confidence = dict[str, tuple[Interval, int]]
"""By metric name: the 95 % interval, clustered by task, and the number of rollouts behind it."""


@dataclass(frozen=True)
class Aggregate:
    tasks: list[Metrics] = field(default_factory=list)
    agent: Metrics = field(default_factory=dict)
    key: Metrics = field(default_factory=dict)


def aggregate(
    verify_responses: Sequence[dict[str, Any]],
    compute_metrics: ComputeMetrics | None = None,
    key_metrics: KeyMetrics | None = None,
) -> Aggregate:
    """Return statistics of `verify_responses`, with the server's own metrics merged in and the key ones picked out."""
    measured = [one for one in verify_responses if not has_no_measurement(one)]
    if not measured:
        return Aggregate()
    agent, tasks = _describe(measured)
    own = dict(compute_metrics(group_responses(measured))) if compute_metrics else {}
    _merge_per_task(tasks, own.pop(PER_TASK_METRICS, None))
    agent |= own
    return Aggregate(tasks, agent, dict((key_metrics or select_means)(agent)))


def group_responses(verify_responses: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the responses of every task, with tasks and rollouts ordered by index."""
    tasks: dict[int, list[dict[str, Any]]] = {}
    for response in sorted(verify_responses, key=read_key):
        tasks.setdefault(read_key(response)[0], []).append(response)
    return list(tasks.values())


def count_expected(rollouts: Sequence[MeasuredRollout], requested: int = 0) -> int:
    """Return how many rollouts a task should have; `requested` is the number asked for, if known."""
    # Rollout indices count from 0, so a gap is a rollout that did not succeed.
    return max(len(rollouts), rollouts[-1].key[1] + 1, requested)


def compute_confidence(
    rollouts: Sequence[MeasuredRollout], own: Mapping[str, Any] | None, *, with_answers: bool
) -> tuple[Metrics, Confidence]:
    """Return the metrics of an agent's scored rollouts, given in order, and their confidence.

    `own` are the metrics that a server computed itself; they replace ours. `with_answers` means that the rollouts hold
    the given answers, which majority@k needs.
    """
    tasks = [of_task for _, of_task in group_by_task(rollouts)]
    rewards = [list_rewards(of_task) for of_task in tasks]
    answers = [[rollout.answer for rollout in of_task] for of_task in tasks] if with_answers else None
    scores = score_rewards(rewards, answers)
    curves = compute_pass_metrics(scores)
    metrics = {**describe_rollouts(rollouts), **curves.metrics} if own is None else dict(own)
    confidence = _measure_rewards(rewards, scores, curves.columns)
    for name, by_task in collect_fields(tasks):
        # A server may mean something else by a name; then only it knows how confident its number is.
        claimed = metrics.get(f"mean/{name}")
        average = mean([*chain.from_iterable(by_task)])
        if isinstance(claimed, int | float) and math.isclose(claimed, average, rel_tol=1e-9, abs_tol=1e-12):
            confidence[f"mean/{name}"] = measure_field(by_task)
    return metrics, confidence


def compute_headline(rewards: Sequence[Sequence[Number]], *, binary: bool, curves: bool = True) -> Confidence:
    """Return the mean reward and, with `curves`, pass@k and pass@1[avg-of-k] for the largest k only.

    `binary`: whether all rewards are 0 or 1. This costs a fraction of computing every k.
    """
    scores = score_rewards(rewards)
    columns: dict[str, list[float]] = {}
    if curves:
        k = max(map(len, rewards))
        full = [of_task for of_task in rewards if len(of_task) == k]
        [name] = scores
        columns[name_metric(PASS, k, name)] = [compute_pass_curve(of_task)[-1] for of_task in full]
        columns[name_metric(AVERAGE, k, name)] = [compute_average_curve(of_task)[-1] for of_task in full]
    return _measure_rewards(rewards, scores, columns, binary=binary)


def measure_field(by_task: Sequence[Sequence[Number]]) -> tuple[Interval, int]:
    """Return the mean of a numeric field with its interval, and how many rollouts have it; no task is empty."""
    binary = all(map(are_binary, by_task))
    return compute_interval_over_tasks(by_task, binary=binary), sum(map(len, by_task))


def _measure_rewards(
    rewards: Sequence[Sequence[Number]],
    scores: Mapping[str, TaskScores],
    columns: Mapping[str, Sequence[float]],
    *,
    binary: bool | None = None,
) -> Confidence:
    """Return the mean rewards and the metrics in `columns`, each with its interval and its number of rollouts.

    `columns` holds the values of all tasks, by metric name, such as `pass@4/accuracy`; `scores` are those that they
    are metrics of.
    """
    is_binary = {name: score.is_binary for name, score in scores.items()}
    if binary is None:
        binary = is_binary.get(ACCURACY, False)
    n = sum(map(len, rewards))
    confidence = {
        MEAN_REWARD: (compute_interval_over_tasks(rewards, binary=binary), n),
        TASK_MEAN_REWARD: (compute_interval([mean(of_task) for of_task in rewards], binary=binary), n),
    }
    for label, column in columns.items():
        name = label.rpartition("/")[2]
        interval = compute_interval(column, scores[name].scale, binary=is_binary[name])
        confidence[label] = interval, _count_rollouts(label, rewards, binary=is_binary[name])
    return confidence


def _count_rollouts(label: str, rewards: Sequence[Sequence[Number]], *, binary: bool) -> int:
    """Return how many rollouts a metric of some k rests on: those of the tasks that have at least k.

    The unbiased pass@k uses all of them, the others only the first k.
    """
    (k,) = map(int, re.findall(r"@(?:1\[avg-of-)?(\d+)\]?/", label))
    counts = [len(of_task) for of_task in rewards if len(of_task) >= k]
    if binary and label.startswith(f"pass@{k}/"):
        return sum(counts)
    return k * len(counts)


@pause_collections()
def _describe(verify_responses: Sequence[dict[str, Any]]) -> tuple[Metrics, list[Metrics]]:
    measured = measure(verify_responses)
    agent = describe_rollouts(measured)
    ref = next((one[AGENT_REF_KEY_NAME] for one in verify_responses if AGENT_REF_KEY_NAME in one), {"name": "agent"})
    return agent, [
        make_entry(task, of_task, count_expected(of_task), {AGENT_REF_KEY_NAME: ref})
        for task, of_task in group_by_task(measured)
    ]


def _merge_per_task(tasks: list[Metrics], per_task: Any) -> None:
    """Add `per_task`, a list in task order or a mapping by task index, to the entries of the tasks."""
    if per_task is None:
        return
    if isinstance(per_task, Mapping):
        by_index = {str(index): values for index, values in per_task.items()}
        for entry in tasks:
            entry.update(by_index.get(str(entry[TASK_INDEX_KEY_NAME]), {}))
        return
    if len(per_task) != len(tasks):
        raise ValueError(
            f"compute_metrics returned {len(per_task)} entries in {PER_TASK_METRICS!r} for {len(tasks)} tasks.\n"
            f"hint: return one mapping per task, in the order of the tasks"
        )
    for entry, values in zip(tasks, per_task, strict=True):
        entry.update(values)
