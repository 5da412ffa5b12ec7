# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run, agent by agent, from its rollouts files: `<stem>_aggregate_metrics.json`.

They are ours (`nemo_gym._results.metrics`), or those of the server that scored the rollouts where it has metrics of its
own; confidence intervals are always ours. Calling servers is left to the caller.
"""

import functools
import itertools
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._results.metrics.describe import format_number, to_finite
from nemo_gym._results.metrics.grouped_metrics import MEAN_REWARD, Confidence, compute_confidence, count_expected
from nemo_gym._results.metrics.pass_at_k import (
    AVERAGE,
    MAJORITY,
    N_SCORED,
    N_TASKS,
    PASS,
    select_highest_k,
    select_means,
)
from nemo_gym._results.metrics.rollout_metrics import group_by_task
from nemo_gym._results.metrics.task_profile import make_entry
from nemo_gym._results.result_rows import (
    AgentRollouts,
    Incidents,
    format_scored,
    read_agent_name,
    read_results,
    read_rollouts,
)
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.atomic_files import atomic_writer
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME, BOOKKEEPING_PREFIX

Post = Callable[[str, list[Row]], Awaitable[Mapping[str, Any] | None]]
"""Asks the server of an agent for the metrics of rows; None where it has none of its own."""

_OPTIONS = orjson.OPT_NON_STR_KEYS
# Every entry begins its own line, and so does every task: the entries can be read without the tasks.
_HEAD_STARTS = b'{"agent_ref":'
_TASKS_FOLLOW = b',"group_level_metrics":['
_LARGEST_FOREIGN_BYTES = 1 << 22
_COMPARED_ROWS = 200


@dataclass(frozen=True)
class Requested:
    """How many rollouts were asked for."""

    agents: Mapping[str | None, int] = field(default_factory=dict)
    tasks: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def count_in_files(cls, paths: Iterable[str | os.PathLike[str]]) -> "Requested":
        """Count the rollouts that the materialized inputs `paths` ask for."""
        agents: Counter[str | None] = Counter()
        tasks: Counter[int] = Counter()
        for path in paths:
            for line in read_results(path):
                agents[read_agent_name(line.row)] += 1
                tasks[line.key[0]] += 1
        return cls(agents, tasks)

    @classmethod
    def count_beside(cls, rollouts: Iterable[str | os.PathLike[str]]) -> "Requested | None":
        """Count those that the materialized inputs beside the rollouts files ask for; None unless all have inputs."""
        plans = [RunPaths.of(os.fspath(path)).materialized for path in rollouts]
        return cls.count_in_files(plans) if all(plan.is_file() for plan in plans) else None


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
    task_fields: tuple[str, ...] = ()
    """Numbers that the rollouts only repeat from their tasks: they say nothing about the agent."""

    def head(self) -> dict[str, Any]:
        """Return the entry of the agent without its tasks."""
        return {
            AGENT_REF_KEY_NAME: {"name": self.agent},
            "agent_metrics": self.agent_metrics,
            "key_metrics": self.key_metrics,
            "confidence": self.confidence,
            **({"task_fields": self.task_fields} if self.task_fields else {}),
            **self.incidents.as_json(),
        }


def aggregate_rollouts(
    agents: Iterable[AgentRollouts], *, requested: Requested | None = None, answer_keys: Mapping[str, str] | None = None
) -> list[AgentAggregate]:
    """Return the metrics of every agent that has rollouts, computed by us.

    `answer_keys`: the field that holds the answer, by agent; such agents get majority@k.
    """
    return [_aggregate(one, requested or Requested(), answer_keys or {}) for one in agents if one.rollouts]


async def aggregate_with(
    post: Post,
    paths: Sequence[str | os.PathLike[str]],
    *,
    requested: Requested | None = None,
    answer_keys: Mapping[str, str] | None = None,
    ask_for: Collection[str] | None = None,
) -> list[AgentAggregate]:
    """Read rollouts files and aggregate them, with the metrics that servers compute themselves.

    `ask_for`: the agents to ask about, None for all; for the others no rows are kept in memory.
    """
    # Event loops are slow to import, and the files can be aggregated without.
    import asyncio

    known = requested or Requested()
    agents = await asyncio.to_thread(read_rollouts, paths, answer_keys=answer_keys, keep_rows_of=ask_for)
    aggregates = []
    for one in agents:
        if one.rollouts:
            own = None
            if one.agent is not None and one.rows:
                own = await post(one.agent, [row for _, row in one.rows])
            one.rows.clear()
            aggregates.append(await asyncio.to_thread(_aggregate, one, known, answer_keys or {}, own))
    return aggregates


def find_task_fields(plan: Path, rollouts: Path) -> list[str]:
    """Return the numbers that rollouts only repeat from their tasks, judged by the first rows of both files."""
    if not plan.is_file() or not rollouts.is_file():
        return []
    planned = {line.key[0]: line.row for line in itertools.islice(read_results(plan), _COMPARED_ROWS)}
    repeated: dict[str, bool] = {}
    for line in itertools.islice(read_results(rollouts), _COMPARED_ROWS):
        task = planned.get(line.key[0])
        if task is None:
            continue
        for name, value in line.row.items():
            if to_finite(value) is not None and not name.startswith(BOOKKEEPING_PREFIX):
                # A verifier may give a field of the task a value of its own.
                repeated[name] = repeated.get(name, True) and name in task and task[name] == value
    return [name for name, is_repeated in repeated.items() if is_repeated]


def write_aggregates(path: str | os.PathLike[str], aggregates: Iterable[AgentAggregate]) -> Path:
    """Write the file of metrics, complete or not at all."""
    with atomic_writer(path) as file:
        opening = b"[\n"
        for aggregate in aggregates:
            head = orjson.dumps(aggregate.head(), option=_OPTIONS)
            file.write(opening + head[:-1] + _TASKS_FOLLOW)
            opening = b",\n"
            separator = b"\n"
            for entry in aggregate.encoded_tasks():
                file.write(separator)
                file.write(entry)
                separator = b",\n"
            file.write(b"]}")
        file.write(b"[]\n" if opening == b"[\n" else b"\n]\n")
    return Path(path)


def read_aggregate_heads(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return every agent's entry in a file of metrics, without its tasks, which may take much more memory."""
    with open(path, "rb") as file:
        lines = (line.partition(_TASKS_FOLLOW) for line in file)
        heads = [orjson.loads(head + b"}") for head, found, _ in lines if found and head.startswith(_HEAD_STARTS)]
        if not heads and os.fstat(file.fileno()).st_size <= _LARGEST_FOREIGN_BYTES:
            file.seek(0)
            heads = orjson.loads(file.read())  # another program lays out its lines differently
    return heads


def _aggregate(
    agent: AgentRollouts, requested: Requested, answer_keys: Mapping[str, str], own: Mapping[str, Any] | None = None
) -> AgentAggregate:
    with_answers = (agent.agent or "") in answer_keys
    if own is None:
        metrics, confidence = compute_confidence(agent.rollouts, None, with_answers=with_answers)
        key_metrics = select_means(metrics)
    else:
        theirs = own.get("agent_metrics") or {}
        metrics, confidence = compute_confidence(agent.rollouts, theirs, with_answers=with_answers)
        key_metrics = dict(own.get("key_metrics") or {})
    n_requested = requested.agents.get(agent.agent)
    return AgentAggregate(
        agent=agent.agent,
        agent_metrics=metrics,
        key_metrics=key_metrics,
        confidence=describe_confidence(confidence, n_requested),
        n_scored=len(agent.rollouts),
        n_requested=n_requested,
        n_tasks=confidence[MEAN_REWARD][0].n_tasks,
        incidents=agent.incidents,
        encoded_tasks=functools.partial(_encode_tasks, (own or {}).get("group_level_metrics"), agent, requested),
    )


def describe_confidence(confidence: Confidence, n_requested: int | None) -> dict[str, dict[str, Any]]:
    """Return the `confidence` of an agent's entry; `n_requested` is how many rollouts were asked for, if known."""
    n_tasks = confidence[MEAN_REWARD][0].n_tasks
    return {
        name: {
            **interval.as_json(),
            "n_tasks_left_out": n_tasks - interval.n_tasks,
            "n_scored": n,
            "n_requested": n_requested,
        }
        for name, (interval, n) in confidence.items()
    }


def _encode_tasks(
    theirs: Iterable[Mapping[str, Any]] | None, agent: AgentRollouts, requested: Requested
) -> Iterator[bytes]:
    """Yield the entry of every task: `theirs`, if the server made some."""
    if theirs is not None:
        yield from (orjson.dumps(entry, option=_OPTIONS) for entry in theirs)
        return
    sample = {AGENT_REF_KEY_NAME: {"name": agent.agent or "agent"}}
    for task, rollouts in group_by_task(agent.rollouts):
        expected = count_expected(rollouts, requested.tasks.get(task, 0))
        yield orjson.dumps(make_entry(task, rollouts, expected, sample))


# --- the table of metrics, as the terminal, the viewer and its export show it -----------------------------------------


METRIC_HEADING = ["metric", "value", "95 % interval", "tasks", "scored"]


@dataclass(frozen=True)
class MetricRow:
    """One metric, and how many rollouts it rests on."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    """The 95 % interval, where there is one."""
    n_scored: int | None = None
    n_requested: int | None = None
    is_part: bool = False
    """It may rest on some of the rollouts only; how many of those were requested is not known."""
    no_interval: str | None = None
    """Why there is no interval, if there could be one."""
    n_tasks: int | None = None
    n_tasks_left_out: int = 0
    """Tasks that have a reward, but too few rollouts for this metric."""

    @property
    def cells(self) -> list[str]:
        """Its row in a table, for METRIC_HEADING."""
        interval = self.no_interval or ""
        if self.low is not None and self.high is not None:
            interval = f"{format_number(self.low)} … {format_number(self.high)}"
        return [self.name, format_number(self.value), interval, self.tasks_text, self.scored_text]

    @property
    def tasks_text(self) -> str:
        if self.n_tasks is None:
            return ""
        return f"{self.n_tasks} of {self.n_tasks + self.n_tasks_left_out}"

    @property
    def scored_text(self) -> str:
        if self.n_scored is None:
            return ""
        return str(self.n_scored) if self.is_part else format_scored(self.n_scored, self.n_requested)


def list_metric_rows(entry: Mapping[str, Any]) -> list[MetricRow]:
    """Return the rows of an agent's entry in the metrics file: the reward, metrics derived from it, the key metrics.

    Numbers that the rollouts only repeat from their tasks get no row.
    """
    confidence = entry.get("confidence") or {}
    names = [MEAN_REWARD] if MEAN_REWARD in confidence else []
    for pattern in (PASS, AVERAGE, MAJORITY):
        names += select_highest_k(confidence, pattern)
    # A number that is too large for a float has no row.
    rows = [_make_metric_row(name, confidence[name]) for name in names if confidence[name]["estimate"] is not None]
    agent_metrics = entry.get("agent_metrics") or {}
    names += [f"mean/{field}" for field in entry.get("task_fields") or ()]
    for name, value in (entry.get("key_metrics") or {}).items():
        if name in names or type(value) not in (int, float) or name.endswith((f"/{N_SCORED}", f"/{N_TASKS}")):
            continue
        if name in confidence and confidence[name]["estimate"] is not None:
            rows.append(_make_metric_row(name, confidence[name]))
        else:  # what a server's own metric rests on, only the server can know
            rows.append(MetricRow(name, value, n_scored=_find_n_scored(name, agent_metrics), is_part=True))
    return rows


def _make_metric_row(name: str, interval: Mapping[str, Any]) -> MetricRow:
    low, high = interval["ci95"] or (None, None)
    return MetricRow(
        name,
        interval["estimate"],
        low,
        high,
        interval["n_scored"],
        interval["n_requested"],
        no_interval=interval.get("no_interval"),
        n_tasks=interval.get("n_tasks"),
        n_tasks_left_out=interval.get("n_tasks_left_out", 0),
    )


def _find_n_scored(name: str, agent_metrics: Mapping[str, Any]) -> int | None:
    """Return how many rollouts a metric rests on, if it or a category that its name begins with says so."""
    places = [f"{N_SCORED}/{name}"]
    category = name
    while "/" in category:
        category = category.rpartition("/")[0]
        places.append(f"{category}/{N_SCORED}")
    return next((agent_metrics[place] for place in places if isinstance(agent_metrics.get(place), int)), None)


def make_metric_table(aggregates: Iterable[AgentAggregate]) -> list[list[str]]:
    """Return the metrics of a run that are worth printing; the first row is the heading."""
    rows = [["agent", *METRIC_HEADING]]
    for one in aggregates:
        rows += [[one.agent or "(no agent)", *row.cells] for row in list_metric_rows(one.head())]
    return rows
