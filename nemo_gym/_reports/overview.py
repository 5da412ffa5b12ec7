# SPDX-License-Identifier: Apache-2.0
"""What a file says as a whole, agent by agent: metrics with their intervals, how rewards spread, tokens, failures.

Made of the index alone, in a few seconds for hundreds of thousands of rows. Nothing is kept between two calls.
"""

import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

from nemo_gym._metrics.describe import mean
from nemo_gym._reports.columns import Columns
from nemo_gym._reports.facts import CUT_OFF, SCORED, TOOL_ERROR
from nemo_gym._reports.failures import FailureCount, count_failures, failed_rollouts
from nemo_gym._reports.groups import PASS_REWARD, Groups, group_rows, scored_rewards
from nemo_gym._reports.histogram import Histogram, histogram_of
from nemo_gym._reports.index import Index, Kind, open_index
from nemo_gym._reports.metrics import field_metrics, merge_metrics, reported_metrics, reward_metrics
from nemo_gym._reports.run_description import RunDescription
from nemo_gym._reports.run_files import RunFiles, run_paths_of
from nemo_gym._results.curves import MEAN_REWARD
from nemo_gym._results.metric_rows import MetricRow
from nemo_gym._results.runs import are_binary

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
