# SPDX-License-Identifier: Apache-2.0
"""What a server's `/aggregate_metrics` answers: statistics of all rollouts and of every task, and the server's own.

Works on verify responses alone; the rows they came from are not needed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._metrics.describe import describe_fields
from nemo_gym._metrics.profile import counts_and_infos
from nemo_gym._metrics.rollouts import Measured, by_task, key_of, measure
from nemo_gym._metrics.select import means
from nemo_gym._util.garbage_collector import pause_garbage_collector
from nemo_gym._util.row_keys import TASK_INDEX_KEY_NAME

PER_TASK_METRICS = "per_task_metrics"

Metrics = dict[str, Any]
ComputeMetrics = Callable[[list[list[dict[str, Any]]]], Metrics]
KeyMetrics = Callable[[Metrics], Metrics]


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
    """Statistics of `verify_responses`, with the server's own metrics over them and the key ones picked out."""
    if not verify_responses:
        return Aggregate()
    agent, tasks = _described(verify_responses)
    own = dict(compute_metrics(grouped(verify_responses))) if compute_metrics else {}
    _merge_per_task(tasks, own.pop(PER_TASK_METRICS, None))
    agent |= own
    return Aggregate(tasks, agent, dict((key_metrics or means)(agent)))


@pause_garbage_collector()
def _described(verify_responses: Sequence[dict[str, Any]]) -> tuple[Metrics, list[Metrics]]:
    measured = measure(verify_responses)
    agent = describe_fields(one.fields() for one in measured)
    left = by_task(measured)
    measured.clear()
    # A task is let go once its entry is there, so that not all of both are held at once.
    return agent, [_task_entry(task, left.pop(task)) for task in [*left]]


def grouped(verify_responses: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The responses of every task, tasks and rollouts in the order of their indices."""
    tasks: dict[int, list[dict[str, Any]]] = {}
    for response in sorted(verify_responses, key=key_of):
        tasks.setdefault(key_of(response).task, []).append(response)
    return list(tasks.values())


def _task_entry(task: int, measured: Sequence[Measured]) -> Metrics:
    # Rollout indices count from 0, so a gap is a rollout that did not succeed.
    expected = max(len(measured), measured[-1].key.rollout + 1)
    return {
        TASK_INDEX_KEY_NAME: task,
        **describe_fields(one.fields() for one in measured),
        "sample": {TASK_INDEX_KEY_NAME: task},
        **counts_and_infos(measured, expected),
    }


def _merge_per_task(tasks: list[Metrics], per_task: Any) -> None:
    """Add `per_task`, a list in the order of the tasks or a mapping by task index, to the entries of the tasks."""
    if per_task is None:
        return
    if isinstance(per_task, Mapping):
        by_index = {str(index): values for index, values in per_task.items()}
        for entry in tasks:
            entry.update(by_index.get(str(entry[TASK_INDEX_KEY_NAME]), {}))
        return
    if len(per_task) != len(tasks):
        raise ValueError(
            f"compute_metrics gave {len(per_task)} entries in {PER_TASK_METRICS!r} for {len(tasks)} tasks.\n"
            f"hint: give one mapping per task, in the order in which the tasks were given"
        )
    for entry, values in zip(tasks, per_task, strict=True):
        entry.update(values)
