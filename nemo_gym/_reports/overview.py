# SPDX-License-Identifier: Apache-2.0
"""What a file says as a whole, agent by agent: metrics with their intervals, how rewards spread, tokens, failures.

Made of the index alone, in a few seconds for hundreds of thousands of rows. Nothing is kept between two calls.
"""

import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

from nemo_gym._metrics.describe import mean
from nemo_gym._reports.columns import Columns
from nemo_gym._reports.index import Index, Kind, ReportError, open_index
from nemo_gym._reports.metrics import (
    Histogram,
    field_metrics,
    histogram_of,
    merge_metrics,
    reported_metrics,
    reward_metrics,
)
from nemo_gym._reports.row_facts import CUT_OFF, FAILED, SCORED, TOOL_ERROR, message_of
from nemo_gym._reports.row_selection import PASS_REWARD, Groups, group_rows, scored_rewards
from nemo_gym._reports.run_files import RunDescription, RunFiles, run_paths_of
from nemo_gym._results.curves import MEAN_REWARD
from nemo_gym._results.metric_rows import MetricRow
from nemo_gym._results.runs import are_binary

_ROWS_SHOWN = 20
_EXAMPLES = 3
_MESSAGE_LENGTH = 300

Key = tuple[int, int]


@dataclass(frozen=True)
class FailureCount:
    """The failures of one kind in one file."""

    kind: str
    count: int
    n_unresolved: int
    """Rollouts among them that have no reward from another attempt either."""
    examples: list[str]
    rows: list[int]
    """The first of them."""
    in_failures_file: bool
    """The rows are those of the failures file, not of the file that is shown."""


def count_failures(index: Index, failures: Index | None) -> list[FailureCount]:
    """The commonest kind first."""
    counted: list[FailureCount] = []
    for source, beside in ((index, False), (failures, True)):
        if source is not None:
            by_kind = _rows_by_kind(source)
            unresolved = _unresolved(index, source, by_kind)
            counted += [
                FailureCount(
                    kind, len(rows), unresolved[kind], _examples(source, rows), list(rows[:_ROWS_SHOWN]), beside
                )
                for kind, rows in by_kind.items()
            ]
    return sorted(counted, key=lambda one: (-one.count, one.kind))


def failed_rollouts(index: Index, failures: Index | None) -> set[tuple[str, int, int]]:
    """Return agent, task and rollout index of every rollout that failed and has no reward from another attempt."""
    failed = {key for source in (index, failures) if source is not None for key in _keys(source, FAILED)}
    return failed.difference(_keys(index, SCORED)) if failed else failed


def _keys(index: Index, flag: int) -> Iterator[tuple[str, int, int]]:
    columns = index.columns
    for row in range(columns.n_rows):
        if columns.flags[row] & flag:
            yield columns.agents[columns.agent[row]], columns.task[row], columns.rollout[row]


def _rows_by_kind(index: Index) -> dict[str, list[int]]:
    columns = index.columns
    found: dict[str, list[int]] = {}
    for row in range(columns.n_rows):
        if columns.flags[row] & FAILED:
            found.setdefault(columns.failures[columns.failure[row]], []).append(row)
    return found


def _unresolved(index: Index, source: Index, by_kind: Mapping[str, list[int]]) -> dict[str, int]:
    """How many rollouts of each kind were never scored."""
    failed = source.columns
    keys = {kind: {(failed.task[row], failed.rollout[row]) for row in rows} for kind, rows in by_kind.items()}
    open_keys: set[Key] = set().union(*keys.values())
    columns = index.columns
    if open_keys:
        scored = (row for row in range(columns.n_rows) if columns.flags[row] & SCORED)
        open_keys.difference_update([(columns.task[row], columns.rollout[row]) for row in scored])
    return {kind: len(of_kind & open_keys) for kind, of_kind in keys.items()}


def _examples(index: Index, rows: list[int]) -> list[str]:
    messages: dict[str, None] = {}
    for row in rows[:_ROWS_SHOWN]:
        try:
            message = message_of(index.read(row))
        except ReportError:
            continue
        if message:
            messages[message[:_MESSAGE_LENGTH]] = None
    return list(messages)[:_EXAMPLES]


T = TypeVar("T")

ALL_AGENTS = "all"
NO_AGENT = "(no agent)"
SAMPLE = 2000
_MOST_RATES = 1000


@dataclass(frozen=True)
class TaskRate:
    """How one task went."""

    task: int
    task_label: str
    n: int
    mean_reward: float
    pass_rate: float
    row: int
    """Its first row."""


@dataclass(frozen=True)
class TokenUsage:
    n_known: int
    """Rows that tell how many tokens they took."""
    input_total: int
    output_total: int
    input_mean: float | None
    output_mean: float | None
    output_max: int | None


@dataclass(frozen=True)
class Point:
    """One scored rollout, for a plot."""

    row: int
    task: int
    agent: str
    reward: float
    length: int
    tool_calls: int
    output_tokens: int | None


@dataclass(frozen=True)
class AgentOverview:
    agent: str
    n_scored: int
    n_failed: int
    n_cut_off: int
    n_with_tool_error: int
    n_tasks: int
    mean_reward: float | None
    """Every task counts alike."""
    is_binary: bool
    """All rewards are 0 or 1."""
    metrics: list[MetricRow]
    histogram: Histogram | None
    """Of the rewards."""
    pass_rates: list[TaskRate]
    """Worst first; an even selection where there are more than a thousand tasks."""
    pass_rate_histogram: Histogram | None
    tokens: TokenUsage
    finish_reasons: dict[str, int]
    tools: dict[str, int]
    """How many rollouts used each tool."""


@dataclass(frozen=True)
class Overview:
    path: str
    kind: Kind
    n_rows: int
    n_tasks: int
    n_scored: int
    n_failed: int
    """Rollouts that have no reward although one or more attempts were made, of this file and the failures file."""
    n_requested: int | None
    """As the run's own record says, if there is one."""
    complete: bool
    n_problems: int
    agents: list[AgentOverview]
    """All together first, if there are several."""
    failures: list[FailureCount]
    points: list[Point]
    """A sample of the scored rollouts."""
    notes: list[str] = field(default_factory=list)
    run: RunDescription | None = None
    """What the run was, if it has left a record."""


def overview(index: Index, failures: Index | None = None, *, sample: int = SAMPLE) -> Overview:
    """The overview of what is indexed so far; `failures` is the index of the failures file of the same run."""
    progress, columns = index.progress(), index.columns
    rows = range(columns.n_rows)
    groups = group_rows(columns, rows)
    run = RunFiles(index)
    manifest = run.read_manifest()
    requested = None if manifest is None else manifest.counts.requested
    reported = reported_metrics(index.path) if index.kind == "rollouts" else {}
    failed = failed_rollouts(index, failures)
    agents = _agents(index.kind, columns, groups, requested, reported, _counts_by_agent(failed))
    counted = count_failures(index, failures)
    return Overview(
        path=str(index.path),
        kind=index.kind,
        n_rows=len(rows),
        n_tasks=len(set(columns.task[: len(rows)])),
        n_scored=sum(1 for row in rows if columns.flags[row] & SCORED),
        n_failed=len(failed),
        n_requested=requested,
        complete=progress.complete,
        n_problems=progress.n_problems,
        agents=agents,
        failures=counted,
        points=_points(columns, rows, sample),
        notes=_notes(columns),
        run=run.describe(),
    )


def failures_beside(index: Index, user_cache_dir: Path | None = None) -> Index | None:
    """The failures file of the same run, opened too; None if there is none or nothing has failed."""
    path = run_paths_of(index.path).failures
    beside = path != index.path and path.is_file() and path.stat().st_size > 0
    return open_index(path, user_cache_dir=user_cache_dir) if beside else None


def _agents(
    kind: Kind,
    columns: Columns,
    groups: Groups,
    requested: int | None,
    reported: dict[str, list[MetricRow]],
    failed: Counter[str],
) -> list[AgentOverview]:
    """Each agent, the rows of every task of its own together."""
    by_agent: dict[int, list[Sequence[int]]] = {}
    for place in range(len(groups)):
        rows = groups.rows_of(place)
        by_agent.setdefault(columns.agent[rows[0]], []).append(rows)
    named = sorted((columns.agents[number] or NO_AGENT, tasks) for number, tasks in by_agent.items())
    if len(named) > 1:
        together = [rows for _, tasks in named for rows in tasks]
        named.insert(0, (ALL_AGENTS, together))
    whole = named[0][0] if named else None
    return [
        _agent(kind, columns, name, tasks, requested if name == whole else None, reported, failed[name])
        for name, tasks in named
    ]


def _agent(
    kind: Kind,
    columns: Columns,
    name: str,
    tasks: Sequence[Sequence[int]],
    requested: int | None,
    reported: dict[str, list[MetricRow]],
    n_failed: int,
) -> AgentOverview:
    everything = array("I", chain.from_iterable(tasks))
    flags = Counter(_taken(columns.flags, everything))
    by_task = [(rows[0], scored_rewards(columns, rows)) for rows in tasks]
    rewards = [found for _, found in by_task if found]
    binary = all(map(are_binary, rewards))
    metrics = reward_metrics(rewards, binary=binary, curves=kind == "rollouts", n_requested=requested)
    metrics += field_metrics(columns, tasks, requested)
    metrics = merge_metrics(reported.get(name, []), metrics)
    rates = sorted(_rates(by_task))
    return AgentOverview(
        agent=name,
        n_scored=sum(map(len, rewards)),
        n_failed=n_failed,
        n_cut_off=_count_flag(flags, CUT_OFF),
        n_with_tool_error=_count_flag(flags, TOOL_ERROR),
        n_tasks=len(tasks),
        mean_reward=next((row.value for row in metrics if row.name == MEAN_REWARD), None),
        is_binary=bool(rewards) and binary,
        metrics=metrics,
        histogram=histogram_of([reward for of_task in rewards for reward in of_task]),
        pass_rates=[_task_rate(columns, *rate) for rate in spread(rates, _MOST_RATES)],
        pass_rate_histogram=histogram_of([rate[0] for rate in rates]),
        tokens=_tokens(columns, everything),
        finish_reasons=_finish_reasons(columns, everything),
        tools=_tools(columns, everything),
    )


def spread(ordered: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spaced, both ends among them."""
    if len(ordered) <= most or most < 2:
        return list(ordered[: max(most, 0)])
    return [ordered[place * (len(ordered) - 1) // (most - 1)] for place in range(most)]


def _taken(column: "array[int]", rows: "array[int]") -> Iterator[int]:
    return map(column.__getitem__, rows)


def _count_flag(counts: Counter[int], flag: int) -> int:
    return sum(count for flags, count in counts.items() if flags & flag)


def _rates(by_task: Iterable[tuple[int, list[float]]]) -> Iterator[tuple[float, float, int, int]]:
    """Pass rate, mean reward, first row and number of scored rollouts of every task that has some."""
    for row, rewards in by_task:
        if rewards:
            n = len(rewards)
            yield sum([reward >= PASS_REWARD for reward in rewards]) / n, mean(rewards), row, n


def _task_rate(columns: Columns, pass_rate: float, mean_reward: float, row: int, n: int) -> TaskRate:
    return TaskRate(columns.task[row], columns.task_label(row), n, mean_reward, pass_rate, row)


def _tokens(columns: Columns, rows: "array[int]") -> TokenUsage:
    pairs = zip(_taken(columns.input_tokens, rows), _taken(columns.output_tokens, rows), strict=True)
    known = [(read if read > 0 else 0, written) for read, written in pairs if written >= 0]
    read, written, n = sum(pair[0] for pair in known), sum(pair[1] for pair in known), len(known)
    return TokenUsage(
        n_known=n,
        input_total=read,
        output_total=written,
        input_mean=read / n if n else None,
        output_mean=written / n if n else None,
        output_max=max((pair[1] for pair in known), default=None),
    )


def _finish_reasons(columns: Columns, rows: "array[int]") -> dict[str, int]:
    counts = Counter(_taken(columns.finish, rows))
    return {columns.finishes[number]: count for number, count in counts.most_common() if columns.finishes[number]}


def _tools(columns: Columns, rows: "array[int]") -> dict[str, int]:
    counts: Counter[str] = Counter()
    for number, count in Counter(_taken(columns.tools, rows)).items():
        counts.update(dict.fromkeys(columns.toolsets[number], count))
    return dict(counts.most_common())


def _points(columns: Columns, rows: Sequence[int], most: int) -> list[Point]:
    scored = array("I", [row for row in rows if columns.flags[row] & SCORED])
    # The same rows each time, so that a plot does not change on its own.
    chosen = scored if len(scored) <= most else sorted(random.Random(0).sample(scored, most))
    return [
        Point(
            row=row,
            task=columns.task[row],
            agent=columns.agents[columns.agent[row]] or NO_AGENT,
            reward=columns.reward[row],
            length=columns.length[row],
            tool_calls=columns.tool_calls[row],
            output_tokens=None if columns.output_tokens[row] < 0 else columns.output_tokens[row],
        )
        for row in chosen
    ]


def _counts_by_agent(failed: Iterable[tuple[str, int, int]]) -> Counter[str]:
    counts = Counter(agent or NO_AGENT for agent, _, _ in failed)
    counts[ALL_AGENTS] = counts.total()
    return counts


def _notes(columns: Columns) -> list[str]:
    if not columns.more_fields:
        return []
    named = ", ".join(list(columns.more_fields)[:5])
    more = "" if len(columns.more_fields) <= 5 else " and others"
    return [f"Only the first {len(columns.fields)} numeric fields are measured; left out: {named}{more}."]
