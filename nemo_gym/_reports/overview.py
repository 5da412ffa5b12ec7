# SPDX-License-Identifier: Apache-2.0
"""What a file says as a whole, agent by agent: metrics with their intervals, how rewards spread, tokens, failures.

Made of the index alone, in a few seconds for hundreds of thousands of rows. Nothing is kept between two calls.
"""

import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from nemo_gym._metrics.aggregate import MEAN_REWARD
from nemo_gym._metrics.describe import are_binary, mean
from nemo_gym._reports.columns import Columns
from nemo_gym._reports.index import Index, ReportError
from nemo_gym._reports.metrics import (
    NO_AGENT,
    Histogram,
    compute_field_metrics,
    compute_reward_metrics,
    make_histogram,
    merge_metrics,
    read_reported_metrics,
)
from nemo_gym._reports.row_facts import CUT_OFF, FAILED, SCORED, TOOL_ERROR, Kind, read_failure_message
from nemo_gym._reports.row_selection import PASS_REWARD, group_rows, list_scored_rewards, pick_evenly
from nemo_gym._reports.run_files import RunDescription, RunFiles
from nemo_gym._results.metric_rows import MetricRow

ALL_AGENTS = "all"
SAMPLE = 2000
_MOST_RATES = 1000
_FAILURES_READ = 20
_MOST_EXAMPLES = 3
_MESSAGE_LENGTH = 300


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
    """The tokens of the rows that tell how many they took."""

    n_known: int
    input_total: int
    output_total: int
    input_mean: float | None
    output_mean: float | None
    output_max: int | None


@dataclass(frozen=True)
class Point:
    """One scored rollout, for a plot."""

    task: int
    agent: str
    reward: float
    length: int
    tool_calls: int


@dataclass(frozen=True)
class FailureCount:
    """The failures of one kind in one file."""

    kind: str
    count: int
    n_unresolved: int
    """Rollouts among them that have no reward from another attempt either."""
    examples: list[str]
    in_failures_file: bool
    """They are in the failures file, not in the file that is shown."""


@dataclass(frozen=True)
class AgentOverview:
    """How one agent did."""

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
    """What a file says as a whole."""

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


def make_overview(index: Index, failures: Index | None = None, *, sample: int = SAMPLE) -> Overview:
    """Summarise what is indexed so far; `failures` is the index of the failures file of the same run."""
    progress, columns, kind = index.progress, index.columns, index.kind
    rows = range(columns.n_rows)
    run_files = RunFiles(index)
    manifest = run_files.read_manifest()
    n_requested = None if manifest is None else manifest.counts.requested
    reported = read_reported_metrics(index.path) if kind == "rollouts" else {}
    failed = _find_failed_rollouts(index, failures)
    n_failed = Counter(agent or NO_AGENT for agent, _, _ in failed)
    n_failed[ALL_AGENTS] = n_failed.total()
    agents = []
    for number, (name, tasks) in enumerate(_group_by_agent(columns)):
        requested = n_requested if number == 0 else None
        agents.append(_summarise_agent(kind, columns, name, tasks, requested, reported.get(name, []), n_failed[name]))
    notes = []
    if columns.more_fields:
        named = ", ".join(list(columns.more_fields)[:5]) + ("" if len(columns.more_fields) <= 5 else " and others")
        notes = [f"Only the first {len(columns.fields)} numeric fields are measured; left out: {named}."]
    return Overview(
        kind=kind,
        n_rows=len(rows),
        n_tasks=len(set(columns.task[: len(rows)])),
        n_scored=sum(1 for row in rows if columns.flags[row] & SCORED),
        n_failed=len(failed),
        n_requested=n_requested,
        complete=progress.complete,
        n_problems=progress.n_problems,
        agents=agents,
        failures=_count_failures(index, failures),
        points=_sample_points(columns, rows, sample),
        notes=notes,
        run=run_files.describe(),
    )


def _group_by_agent(columns: Columns) -> list[tuple[str, list[Sequence[int]]]]:
    """Return the tasks of each agent, each as its rows; of all agents together first, if there are several."""
    by_agent: dict[int, list[Sequence[int]]] = {}
    for rows in group_rows(columns, range(columns.n_rows)):
        by_agent.setdefault(columns.agent[rows[0]], []).append(rows)
    named = sorted((columns.agents[number] or NO_AGENT, tasks) for number, tasks in by_agent.items())
    if len(named) > 1:
        named.insert(0, (ALL_AGENTS, [rows for _, tasks in named for rows in tasks]))
    return named


def _summarise_agent(
    kind: Kind,
    columns: Columns,
    name: str,
    tasks: Sequence[Sequence[int]],
    n_requested: int | None,
    reported: Sequence[MetricRow],
    n_failed: int,
) -> AgentOverview:
    rows = array("I", chain.from_iterable(tasks))
    by_task = [(of_task[0], list_scored_rewards(columns, of_task)) for of_task in tasks]
    rewards = [found for _, found in by_task if found]
    binary = all(map(are_binary, rewards))
    metrics = compute_reward_metrics(rewards, binary=binary, curves=kind == "rollouts", n_requested=n_requested)
    metrics = merge_metrics(reported, [*metrics, *compute_field_metrics(columns, tasks, n_requested)])
    rates = sorted(
        (sum([reward >= PASS_REWARD for reward in found]) / len(found), mean(found), row, len(found))
        for row, found in by_task
        if found
    )
    flags = Counter(map(columns.flags.__getitem__, rows))
    finishes = Counter(map(columns.finish.__getitem__, rows)).most_common()
    tools: Counter[str] = Counter()
    for number, count in Counter(map(columns.tools.__getitem__, rows)).items():
        tools.update(dict.fromkeys(columns.toolsets[number], count))
    return AgentOverview(
        agent=name,
        n_scored=sum(map(len, rewards)),
        n_failed=n_failed,
        n_cut_off=sum(count for flag, count in flags.items() if flag & CUT_OFF),
        n_with_tool_error=sum(count for flag, count in flags.items() if flag & TOOL_ERROR),
        n_tasks=len(tasks),
        mean_reward=next((row.value for row in metrics if row.name == MEAN_REWARD), None),
        is_binary=bool(rewards) and binary,
        metrics=metrics,
        histogram=make_histogram([reward for of_task in rewards for reward in of_task]),
        pass_rates=[
            TaskRate(columns.task[row], columns.label_task(row), n, mean, rate, row)
            for rate, mean, row, n in pick_evenly(rates, _MOST_RATES)
        ],
        pass_rate_histogram=make_histogram([rate[0] for rate in rates]),
        tokens=_sum_tokens(columns, rows),
        finish_reasons={name: count for number, count in finishes if (name := columns.finishes[number])},
        tools=dict(tools.most_common()),
    )


def _sum_tokens(columns: Columns, rows: "array[int]") -> TokenUsage:
    counts = ((columns.input_tokens[row], columns.output_tokens[row]) for row in rows)
    known = [(max(read, 0), written) for read, written in counts if written >= 0]
    read, written, n = sum(pair[0] for pair in known), sum(pair[1] for pair in known), len(known)
    return TokenUsage(
        n_known=n,
        input_total=read,
        output_total=written,
        input_mean=read / n if n else None,
        output_mean=written / n if n else None,
        output_max=max((pair[1] for pair in known), default=None),
    )


def _sample_points(columns: Columns, rows: Sequence[int], most: int) -> list[Point]:
    scored = array("I", [row for row in rows if columns.flags[row] & SCORED])
    # The same rows each time, so that a plot does not change on its own.
    chosen = scored if len(scored) <= most else sorted(random.Random(0).sample(scored, most))
    return [
        Point(
            task=columns.task[row],
            agent=columns.agents[columns.agent[row]] or NO_AGENT,
            reward=columns.reward[row],
            length=columns.length[row],
            tool_calls=columns.tool_calls[row],
        )
        for row in chosen
    ]


# --- failures ---------------------------------------------------------------------------------------------------------


def _find_failed_rollouts(index: Index, failures: Index | None) -> set[tuple[str, int, int]]:
    """Return agent, task and rollout index of every rollout that failed and has no reward from another attempt."""
    failed = {key for source in (index, failures) if source is not None for key in _iter_keys(source, FAILED)}
    return failed.difference(_iter_keys(index, SCORED)) if failed else failed


def _iter_keys(index: Index, flag: int) -> Iterator[tuple[str, int, int]]:
    columns = index.columns
    for row in range(columns.n_rows):
        if columns.flags[row] & flag:
            yield columns.agents[columns.agent[row]], columns.task[row], columns.rollout[row]


def _count_failures(index: Index, failures: Index | None) -> list[FailureCount]:
    """Count failures by kind, in the file that is shown and in the failures file; the commonest kind comes first."""
    counted: list[FailureCount] = []
    for source in (index, failures):
        if source is None:
            continue
        columns, by_kind = source.columns, dict[str, list[int]]()
        for row in range(columns.n_rows):
            if columns.flags[row] & FAILED:
                by_kind.setdefault(columns.failures[columns.failure[row]], []).append(row)
        keys = {kind: {(columns.task[row], columns.rollout[row]) for row in rows} for kind, rows in by_kind.items()}
        unresolved: set[tuple[int, int]] = set().union(*keys.values())
        if unresolved:
            unresolved.difference_update((task, rollout) for _, task, rollout in _iter_keys(index, SCORED))
        for kind, rows in by_kind.items():
            n_unresolved, examples = len(keys[kind] & unresolved), _read_examples(source, rows)
            counted.append(FailureCount(kind, len(rows), n_unresolved, examples, in_failures_file=source is failures))
    return sorted(counted, key=lambda one: (-one.count, one.kind))


def _read_examples(index: Index, rows: Sequence[int]) -> list[str]:
    """Return a few different messages of the first failures."""
    messages: dict[str, None] = {}
    for row in rows[:_FAILURES_READ]:
        try:
            message = read_failure_message(index.read_row(row))
        except ReportError:
            continue
        if message:
            messages[message[:_MESSAGE_LENGTH]] = None
    return list(messages)[:_MOST_EXAMPLES]
