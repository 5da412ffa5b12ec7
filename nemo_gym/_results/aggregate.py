# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run, agent by agent, from its rollouts files: `<stem>_aggregate_metrics.json`.

They are ours (`nemo_gym._metrics`), or those of the server that scored the rollouts where it has metrics of its own;
confidence intervals are always ours. Calling servers is left to the caller.
"""

import functools
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._metrics.aggregate import MEAN_REWARD, compute_confidence, count_expected
from nemo_gym._metrics.pass_at_k import select_means
from nemo_gym._metrics.rollouts import group_by_task
from nemo_gym._metrics.task_entries import TaskEncoder
from nemo_gym._results.incidents import Incidents
from nemo_gym._results.rows import agent_of, read_planned
from nemo_gym._results.scored_rollouts import AgentRollouts, read_rollouts
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.types import Row
from nemo_gym._util.files import atomic_writer
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME, TASK_INDEX_KEY_NAME

Post = Callable[[str, list[Row]], Awaitable[Mapping[str, Any] | None]]
"""Asks the server of an agent for the metrics of rows; None where it has none of its own."""

_OPTIONS = orjson.OPT_NON_STR_KEYS
_TASK_INDEX = TASK_INDEX_KEY_NAME.encode()


@dataclass(frozen=True)
class Requested:
    """How many rollouts were asked for."""

    agents: Mapping[str | None, int] = field(default_factory=dict)
    tasks: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def in_files(cls, paths: Iterable[str | os.PathLike[str]]) -> "Requested":
        """Count what the materialized inputs `paths` ask for."""
        agents: Counter[str | None] = Counter()
        tasks: Counter[int] = Counter()
        for path in paths:
            for _, _, key, row in read_planned(path):
                agents[agent_of(row)] += 1
                tasks[key[0]] += 1
        return cls(agents, tasks)

    @classmethod
    def beside(cls, rollouts: Iterable[str | os.PathLike[str]]) -> "Requested | None":
        """Count what the materialized inputs beside the rollouts files ask for; None unless each has them."""
        plans = [RunPaths.of(os.fspath(path)).materialized for path in rollouts]
        return cls.in_files(plans) if all(plan.is_file() for plan in plans) else None


@dataclass(frozen=True)
class AgentAggregate:
    """The metrics of one agent."""

    agent: str | None
    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]
    confidence: dict[str, dict[str, Any]]
    """95 % intervals, clustered by task, under the names of the metrics."""
    n_scored: int
    n_requested: int | None
    """None where nothing says how many were asked for."""
    n_tasks: int
    incidents: Incidents
    """Crashed tools and early ends among the scored rollouts."""
    encoded_tasks: Callable[[], Iterable[bytes]]
    """The metrics of every task as JSON, made when they are asked for: they are larger than all else together."""

    def task_entries(self) -> Iterator[dict[str, Any]]:
        """Yield the metrics of every task."""
        return map(orjson.loads, self.encoded_tasks())

    def head(self) -> dict[str, Any]:
        """Return the entry of the agent without its tasks."""
        return {
            AGENT_REF_KEY_NAME: {"name": self.agent},
            "agent_metrics": self.agent_metrics,
            "key_metrics": self.key_metrics,
            "confidence": self.confidence,
            **self.incidents.as_json(),
        }

    def entry(self) -> dict[str, Any]:
        """Return the entry of the agent in the file."""
        return {**self.head(), "group_level_metrics": list(self.task_entries())}


def aggregate_files(
    paths: Iterable[str | os.PathLike[str]],
    *,
    requested: Requested | None = None,
    answer_keys: Mapping[str, str] | None = None,
) -> list[AgentAggregate]:
    """Return the metrics of every agent in the rollouts files `paths`, computed by us.

    `answer_keys`: the field that holds the answer, by agent; such agents get majority@k.
    """
    return aggregate_rollouts(
        read_rollouts(paths, answer_keys=answer_keys), requested=requested, answer_keys=answer_keys
    )


def aggregate_rollouts(
    agents: Iterable[AgentRollouts], *, requested: Requested | None = None, answer_keys: Mapping[str, str] | None = None
) -> list[AgentAggregate]:
    """Like `aggregate_files`, for rollouts that were read already."""
    return [_aggregate(one, requested or Requested(), answer_keys or {}) for one in agents if one.rollouts]


async def aggregate_with(
    post: Post,
    paths: Sequence[str | os.PathLike[str]],
    *,
    requested: Requested | None = None,
    answer_keys: Mapping[str, str] | None = None,
    ask_for: Collection[str] | None = None,
) -> list[AgentAggregate]:
    """Like `aggregate_files`, with the metrics that servers compute themselves.

    `ask_for`: the agents to ask about, None for all; for the others no rows are kept in memory.
    """
    # Event loops are slow to import, and the files can be aggregated without.
    from nemo_gym._util.aio import in_thread

    known = requested or Requested()
    agents = await in_thread(read_rollouts, paths, answer_keys=answer_keys, keep_rows_of=ask_for)
    aggregates = []
    for one in agents:
        if one.rollouts:
            own = await post(one.agent, [row for _, row in one.rows]) if one.agent is not None and one.rows else None
            one.rows.clear()
            aggregates.append(await in_thread(_aggregate, one, known, answer_keys or {}, own))
    return aggregates


def write_aggregates(path: str | os.PathLike[str], aggregates: Iterable[AgentAggregate]) -> Path:
    """Write the file of metrics, complete or not at all."""
    with atomic_writer(path) as file:
        opening = b"[\n"
        for aggregate in aggregates:
            head = orjson.dumps(aggregate.head(), option=_OPTIONS)
            file.write(opening + head[:-1] + b',"group_level_metrics":[')
            opening = b",\n"
            separator = b"\n"
            for entry in aggregate.encoded_tasks():
                file.write(separator)
                file.write(entry)
                separator = b",\n"
            file.write(b"]}")
        file.write(b"[]\n" if opening == b"[\n" else b"\n]\n")
    return Path(path)


def _aggregate(
    agent: AgentRollouts, requested: Requested, answer_keys: Mapping[str, str], own: Mapping[str, Any] | None = None
) -> AgentAggregate:
    theirs = None if own is None else own.get("agent_metrics") or {}
    metrics, confidence = compute_confidence(agent.rollouts, theirs, with_answers=(agent.agent or "") in answer_keys)
    n_requested = requested.agents.get(agent.agent)
    return AgentAggregate(
        agent=agent.agent,
        agent_metrics=metrics,
        key_metrics=select_means(metrics) if own is None else dict(own.get("key_metrics") or {}),
        confidence={
            name: {**interval.as_json(), "n_scored": n, "n_requested": n_requested}
            for name, (interval, n) in confidence.items()
        },
        n_scored=len(agent.rollouts),
        n_requested=n_requested,
        n_tasks=confidence[MEAN_REWARD][0].n_tasks,
        incidents=agent.incidents,
        encoded_tasks=functools.partial(_encode_tasks, (own or {}).get("group_level_metrics"), agent, requested),
    )


def _encode_tasks(
    theirs: Iterable[Mapping[str, Any]] | None, agent: AgentRollouts, requested: Requested
) -> Iterator[bytes]:
    """Yield the entry of every task: `theirs`, if the server made some."""
    if theirs is not None:
        yield from (orjson.dumps(entry, option=_OPTIONS) for entry in theirs)
        return
    encoder = TaskEncoder()
    for task, rollouts in group_by_task(agent.rollouts):
        expected = count_expected(rollouts, requested.tasks.get(task, 0))
        yield encoder.encode(task, rollouts, expected, b'{"%b":%d}' % (_TASK_INDEX, task))
