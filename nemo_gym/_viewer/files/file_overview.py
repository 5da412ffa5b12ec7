# SPDX-License-Identifier: Apache-2.0
"""A file as a whole, per agent: metrics with their intervals, reward distribution, tokens, failures.

The metrics are those that the run wrote beside its rollouts, if they cover the file as it is. Everything else is
computed from the index, in a few seconds for hundreds of thousands of rows.
"""

import random
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from nemo_gym._results.aggregate_files import (
    MetricRow,
    describe_confidence,
    list_metric_rows,
    read_aggregate_heads,
)
from nemo_gym._results.metrics.describe import Histogram, are_binary, make_histogram, mean
from nemo_gym._results.metrics.grouped_metrics import MEAN_REWARD, compute_headline, measure_field
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._viewer.files.columns import Columns
from nemo_gym._viewer.files.file_index import Index, ReportError
from nemo_gym._viewer.files.row_facts import CUT_OFF, FAILED, NOT_RUN, SCORED, TOOL_ERROR, read_failure_message
from nemo_gym._viewer.files.row_selection import group_rows, list_scored_rewards, pick_evenly, rate_passes
from nemo_gym._viewer.files.run_companions import RunDescription, RunFiles

ALL_AGENTS = "all"
NO_AGENT = "(no agent)"
LEARNING_CURVE = "learning-curve.png"
"""The name of a picture that a file's overview shows if it is beside the file."""
_LARGEST_PICTURE_BYTES = 1 << 22
_POINTS = 2000
_MOST_RATES = 1000
_FAILURES_READ = 20
_MOST_EXAMPLES = 3
_MESSAGE_LENGTH = 300


@dataclass(frozen=True)
class TaskRate:
    """How one task went."""

    task_label: str
    n: int
    mean_reward: float
    pass_rate: float
    row: int
    """Its first row."""


@dataclass(frozen=True)
class TokenUsage:
    """The tokens of the rows that report them."""

    n_known: int
    input_total: int
    output_total: int
    output_max: int


@dataclass(frozen=True)
class Point:
    """One scored rollout, for a plot."""

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
    """How many of them have no reward from another attempt either."""
    examples: list[str]
    in_failures_file: bool
    """Whether they are in the failures file, not in the file shown."""


@dataclass(frozen=True)
class AgentOverview:
    """How one agent did."""

    agent: str
    n_cut_off: int
    n_with_tool_error: int
    mean_reward: float | None
    """Over all scored rollouts."""
    is_binary: bool
    """Whether all rewards are 0 or 1."""
    metrics: list[MetricRow]
    histogram: Histogram | None
    """Of the rewards."""
    pass_rates: list[TaskRate]
    """Worst first; an even selection if there are more than a thousand tasks."""
    pass_rate_histogram: Histogram | None
    tokens: TokenUsage
    finish_reasons: dict[str, int]
    tools: dict[str, int]
    """How many rollouts used each tool."""


@dataclass(frozen=True)
class Overview:
    """A file as a whole."""

    n_rows: int
    n_tasks: int
    n_scored: int
    n_failed: int
    """Rollouts without a reward despite one or more attempts, in this file and the failures file."""
    n_not_run: int
    """Rollouts that were in flight when the run was stopped, and that have neither reward nor failure since."""
    n_requested: int | None
    """From the run's own record, if there is one."""
    complete: bool
    n_problems: int
    agents: list[AgentOverview]
    """All agents together first, if there are several."""
    failures: list[FailureCount]
    points: list[Point]
    """A sample of the scored rollouts."""
    notes: list[str] = field(default_factory=list)
    run: RunDescription | None = None
    """Describes the run, if it left a record."""
    learning_curve: bytes | None = None
    """A picture (PNG) of the training that the run belongs to, if there is one beside the file."""


def make_overview(index: Index, failures: Index | None = None) -> Overview:
    """Summarize what is indexed so far; `failures` is the index of the same run's failures file."""
    progress = index.progress
    columns = index.columns
    is_run = index.kind == "rollouts"
    rows = range(columns.n_rows)
    run_files = RunFiles(index)
    manifest = run_files.read_manifest()
    n_requested = None if manifest is None else manifest.counts.requested
    written = _read_metrics_file(index.path) if is_run else {}
    agents = []
    computed_for = []
    for number, (name, tasks) in enumerate(_group_by_agent(columns)):
        entry = written.get(name, {})
        if not _describes(entry, columns, tasks):
            entry = _compute_metrics(columns, tasks, n_requested if number == 0 else None, entry, curves=is_run)
            computed_for.append(name)
        agents.append(_summarize_agent(columns, name, tasks, list_metric_rows(_add_fields(entry, columns))))
    notes = _explain_metrics(index.path, agents, computed_for) if is_run else []
    if columns.more_fields and computed_for:
        named = ", ".join(list(columns.more_fields)[:5])
        if len(columns.more_fields) > 5:
            named += " and others"
        notes.append(f"Only the first {len(columns.fields)} numeric fields are measured; left out: {named}.")
    scored = array("I", [row for row in rows if columns.flags[row] & SCORED])
    sample: Sequence[int] = scored
    if len(scored) > _POINTS:
        # The same rows every time, so that a plot does not change by itself.
        sample = sorted(random.Random(0).sample(scored, _POINTS))
    sources = [source for source in (index, failures) if source is not None]
    failed = {key for source in sources for key in _iter_keys(source, FAILED)}
    not_run = {key for source in sources for key in _iter_keys(source, NOT_RUN)}
    if failed or not_run:
        failed.difference_update(_iter_keys(index, SCORED))
        not_run.difference_update(failed, _iter_keys(index, SCORED))
    return Overview(
        n_rows=len(rows),
        n_tasks=len(set(columns.task[: len(rows)])),
        n_scored=len(scored),
        n_failed=len(failed),
        n_not_run=len(not_run),
        n_requested=n_requested,
        complete=progress.complete,
        n_problems=progress.n_problems,
        agents=agents,
        failures=_count_failures(index, failures),
        points=[
            Point(
                agent=columns.agents[columns.agent[row]] or NO_AGENT,
                reward=columns.reward[row],
                length=columns.length[row],
                tool_calls=columns.tool_calls[row],
            )
            for row in sample
        ],
        notes=notes,
        run=run_files.describe(),
        learning_curve=_read_learning_curve(index.path) if is_run else None,
    )


def _read_learning_curve(rollouts: Path) -> bytes | None:
    """Return the picture that a training run left beside its evaluations."""
    picture = rollouts.with_name(LEARNING_CURVE)
    with suppress(OSError):
        if picture.is_file() and picture.stat().st_size <= _LARGEST_PICTURE_BYTES:
            return picture.read_bytes()
    return None


def _group_by_agent(columns: Columns) -> list[tuple[str, list[Sequence[int]]]]:
    """Return each agent's tasks, each task as its rows; all agents together first, if there are several."""
    by_agent: dict[int, list[Sequence[int]]] = {}
    for rows in group_rows(columns, range(columns.n_rows)):
        by_agent.setdefault(columns.agent[rows[0]], []).append(rows)
    named = sorted((columns.agents[number] or NO_AGENT, tasks) for number, tasks in by_agent.items())
    if len(named) > 1:
        named.insert(0, (ALL_AGENTS, [rows for _, tasks in named for rows in tasks]))
    return named


def _summarize_agent(
    columns: Columns, name: str, tasks: Sequence[Sequence[int]], metrics: list[MetricRow]
) -> AgentOverview:
    rows = array("I", chain.from_iterable(tasks))
    by_task = [(of_task[0], list_scored_rewards(columns, of_task)) for of_task in tasks]
    rewards = [found for _, found in by_task if found]
    rates = sorted((rate_passes(found), mean(found), row, len(found)) for row, found in by_task if found)
    flags = Counter(map(columns.flags.__getitem__, rows))
    finishes = Counter(map(columns.finish.__getitem__, rows)).most_common()
    tools: Counter[str] = Counter()
    for number, count in Counter(map(columns.tools.__getitem__, rows)).items():
        tools.update(dict.fromkeys(columns.toolsets[number], count))
    counts = ((columns.input_tokens[row], columns.output_tokens[row]) for row in rows)
    tokens = [(max(read, 0), written) for read, written in counts if written >= 0]
    return AgentOverview(
        agent=name,
        n_cut_off=sum(count for flag, count in flags.items() if flag & CUT_OFF),
        n_with_tool_error=sum(count for flag, count in flags.items() if flag & TOOL_ERROR),
        mean_reward=next((row.value for row in metrics if row.name == MEAN_REWARD), None),
        is_binary=bool(rewards) and all(map(are_binary, rewards)),
        metrics=metrics,
        histogram=make_histogram([*chain.from_iterable(rewards)]),
        pass_rates=[
            TaskRate(columns.label_task(row), n, mean, rate, row)
            for rate, mean, row, n in pick_evenly(rates, _MOST_RATES)
        ],
        pass_rate_histogram=make_histogram([rate[0] for rate in rates]),
        tokens=TokenUsage(
            n_known=len(tokens),
            input_total=sum(read for read, _ in tokens),
            output_total=sum(written for _, written in tokens),
            output_max=max((written for _, written in tokens), default=0),
        ),
        finish_reasons={name: count for number, count in finishes if (name := columns.finishes[number])},
        tools=dict(tools.most_common()),
    )


# --- metrics ----------------------------------------------------------------------------------------------------------


def _read_metrics_file(rollouts: Path) -> dict[str, dict[str, Any]]:
    """Return each agent's entry in the metrics file that the run wrote; nothing if it is older than the rollouts."""
    path = RunPaths.of(rollouts).aggregate_metrics
    try:
        if path.stat().st_mtime_ns < rollouts.stat().st_mtime_ns:
            return {}
        entries = {
            str((entry.get("agent_ref") or {}).get("name") or NO_AGENT): entry for entry in read_aggregate_heads(path)
        }
        for entry in entries.values():
            list_metric_rows(entry)
        return entries
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, or not a file of ours
        return {}


def _describes(entry: Mapping[str, Any], columns: Columns, tasks: Sequence[Sequence[int]]) -> bool:
    """Return whether an entry of a metrics file covers exactly these rollouts."""
    mean_reward = (entry.get("confidence") or {}).get(MEAN_REWARD)
    n_scored = sum(len(list_scored_rewards(columns, rows)) for rows in tasks)
    return mean_reward is not None and mean_reward["n_scored"] == n_scored


def _compute_metrics(
    columns: Columns,
    tasks: Sequence[Sequence[int]],
    n_requested: int | None,
    written: Mapping[str, Any],
    *,
    curves: bool,
) -> dict[str, Any]:
    """Return an agent's entry as a run would write it, with only what the page shows of it.

    `curves` adds pass@k for the largest k. `written` is an entry of another program, which has no intervals.
    """
    rewards = [found for rows in tasks if (found := list_scored_rewards(columns, rows))]
    if not rewards:
        return {}
    confidence = compute_headline(rewards, binary=all(map(are_binary, rewards)), curves=curves)
    for name, values in columns.fields.copy().items():
        # NaN is the only number that differs from itself.
        by_task = [
            [value for row in rows if (value := values[row]) == value and columns.flags[row] & SCORED] for rows in tasks
        ]
        if known := [of_task for of_task in by_task if of_task]:
            confidence[f"mean/{name}"] = measure_field(known)
    entry = {"confidence": describe_confidence(confidence, n_requested)}
    if "confidence" in written:  # it speaks of other rollouts
        return entry
    return {**written, **entry}


def _add_fields(entry: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Return an entry with the mean of every numeric field of the rows among its key metrics."""
    confidence = entry.get("confidence") or {}
    key_metrics = dict(entry.get("key_metrics") or {})
    means = [f"mean/{name}" for name in columns.fields.copy()]  # which a growing file may add to
    for name in means:
        if name in confidence:
            key_metrics.setdefault(name, confidence[name]["estimate"])
    return {**entry, "key_metrics": key_metrics}


def _explain_metrics(rollouts: Path, agents: Sequence[AgentOverview], computed_for: Collection[str]) -> list[str]:
    """Say where the metrics on the page are from."""
    name = RunPaths.of(rollouts).aggregate_metrics.name
    if not any(agent.metrics for agent in agents):
        return []
    if not computed_for:
        return [f"These metrics are those of {name}, which the run wrote."]
    if set(computed_for) == {ALL_AGENTS}:
        return [f"The metrics of each agent are those of {name}, which the run wrote; those of all are computed here."]
    return [f"These metrics are computed here: there is no {name} that covers the rollouts as they are."]


# --- failures ---------------------------------------------------------------------------------------------------------


def _iter_keys(index: Index, flag: int) -> Iterator[tuple[str, int, int]]:
    columns = index.columns
    for row in range(columns.n_rows):
        if columns.flags[row] & flag:
            yield columns.agents[columns.agent[row]], columns.task[row], columns.rollout[row]


def _count_failures(index: Index, failures: Index | None) -> list[FailureCount]:
    """Count failures by kind, in the file shown and in the failures file; most common kind first."""
    counted: list[FailureCount] = []
    for source in (index, failures):
        if source is None:
            continue
        columns = source.columns
        by_kind = dict[str, list[int]]()
        for row in range(columns.n_rows):
            if columns.flags[row] & FAILED:
                by_kind.setdefault(columns.failures[columns.failure[row]], []).append(row)
        keys = {kind: {(columns.task[row], columns.rollout[row]) for row in rows} for kind, rows in by_kind.items()}
        unresolved: set[tuple[int, int]] = set().union(*keys.values())
        if unresolved:
            unresolved.difference_update((task, rollout) for _, task, rollout in _iter_keys(index, SCORED))
        for kind, rows in by_kind.items():
            messages: dict[str, None] = {}
            for row in rows[:_FAILURES_READ]:
                with suppress(ReportError):
                    messages[read_failure_message(source.read_row(row))[:_MESSAGE_LENGTH]] = None
            n_unresolved = len(keys[kind] & unresolved)
            examples = list(filter(None, messages))[:_MOST_EXAMPLES]
            counted.append(FailureCount(kind, len(rows), n_unresolved, examples, in_failures_file=source is failures))
    return sorted(counted, key=lambda one: (-one.count, one.kind))
