# SPDX-License-Identifier: Apache-2.0
"""The scored rollouts of a run in memory, each reduced to its numbers, and the statistics of some of them.

They are what `nemo_gym._metrics` says of the same rows, at a speed fit for hundreds of thousands. Rows that carry no
score are counted and left out: a failure is no zero.
"""

import logging
import math
import os
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from nemo_gym._metrics.describe import Number, describe, describe_fields, labels, mean
from nemo_gym._results.incidents import Incidents
from nemo_gym._results.measure import Fields, Measures, Values, picker
from nemo_gym._results.rows import Place, SeenKeys, agent_of, key_at, reward_of, sized_lines, stripped
from nemo_gym._results.spots import packed
from nemo_gym._rollouts.types import Key, Row
from nemo_gym._util.row_keys import REWARD_KEY_NAME

LOG = logging.getLogger(__name__)
# Sums and squares of larger numbers might overflow.
_LARGE = 1e150

_Read = tuple[str | os.PathLike[str], list[Key], "array[int]"]
"""A file, and the key and the line of every row in it."""


class Run(NamedTuple):
    """One scored rollout."""

    key: Key
    reward: Number
    fields: Fields
    """The names of its numeric fields and token counts; runs that were read together share it if theirs are equal."""
    values: Values
    answer: object = None
    """What it answered, where the field that holds it is known."""

    @classmethod
    def of(cls, key: Key, numbers: Mapping[str, Number]) -> "Run":
        return cls(key, numbers[REWARD_KEY_NAME], tuple(numbers), tuple(numbers.values()))

    @property
    def numbers(self) -> dict[str, Number]:
        return dict(zip(self.fields, self.values, strict=True))


@dataclass
class AgentRuns:
    """The scored rollouts of one agent, in order of task and rollout."""

    agent: str | None
    runs: list[Run] = field(default_factory=list)
    n_unscored: int = 0
    """Rows of the files that hold no score."""
    rows: list[tuple[Key, Row]] = field(default_factory=list)
    """The stripped rows themselves, where they were asked for."""
    incidents: Incidents = field(default_factory=Incidents)
    """What happened in the scored rollouts."""

    def tasks(self) -> Iterator[tuple[int, list[Run]]]:
        return tasks_of(self.runs)


def tasks_of(runs: Iterable[Run]) -> Iterator[tuple[int, list[Run]]]:
    """The runs of every task, out of runs in order."""
    task, of_task = -1, list[Run]()
    for run in runs:
        if run.key[0] != task:
            if of_task:
                yield task, of_task
            task, of_task = run.key[0], []
        of_task.append(run)
    if of_task:
        yield task, of_task


def read_runs(
    paths: Iterable[str | os.PathLike[str]],
    *,
    answer_keys: Mapping[str, str] | None = None,
    keep_rows_of: Collection[str | None] | None = (),
    spots: list[int] | None = None,
) -> list[AgentRuns]:
    """The rollouts of every agent, agents in order of their names.

    `answer_keys`: the field that holds the answer, by agent. `keep_rows_of`: the agents whose stripped rows are kept,
    None for all. `spots`: gets to know where every row stands, and whether one occurs twice is then up to its owner;
    otherwise that is a ResultsError.
    """
    agents: dict[str | None, AgentRuns] = {}
    read, unscored = list[_Read](), list[Place]()
    numbers_of, known_answers = Measures().of, answer_keys or {}
    for shard, path in enumerate(paths):
        keys, lines = list[Key](), array("Q")
        read.append((path, keys, lines))
        for line, offset, size, row in sized_lines(path):
            key, agent = key_at(row, path, line), agent_of(row)
            if spots is None:
                keys.append(key)
                lines.append(line)
            else:
                spots.append(packed(key, shard, offset, size))
            of_agent = agents.get(agent) or agents.setdefault(agent, AgentRuns(agent))
            if reward_of(row) is None:
                of_agent.n_unscored += 1
                unscored = unscored or [Place(os.fspath(path), line)]
                continue
            of_agent.incidents.add(row)
            fields, values = numbers_of(row)
            answer_key = known_answers.get(agent or "")
            answer = row.get(answer_key) if answer_key else None
            of_agent.runs.append(Run(key, +row[REWARD_KEY_NAME], fields, values, answer))
            if keep_rows_of is None or agent in keep_rows_of:
                of_agent.rows.append((key, stripped(row)))
    _require_distinct(read)
    if unscored:
        count = sum(one.n_unscored for one in agents.values())
        LOG.warning("%d rows hold no score and are not counted; the first is %s", count, unscored[0])
    return _in_order(agents)


def _in_order(agents: Mapping[str | None, AgentRuns]) -> list[AgentRuns]:
    for one in agents.values():
        one.runs.sort(key=itemgetter(0))
        one.rows.sort(key=itemgetter(0))
    return [agents[name] for name in sorted(agents, key=lambda name: name or "")]


def _require_distinct(read: Sequence[_Read]) -> None:
    if len(set(chain.from_iterable(keys for _, keys, _ in read))) < sum(len(keys) for _, keys, _ in read):
        seen = SeenKeys()
        for path, keys, lines in read:
            seen.begin(path)
            for key, line in zip(keys, lines, strict=True):
                seen.add(key, line)  # raises, naming both places


def describe_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """`<statistic>/<field>` of every field, as `describe_fields` gives them."""
    fields = runs[0].fields
    if all(run.fields is fields for run in runs):
        return dict(zip(labels(fields), describe_values([run.values for run in runs]), strict=True))
    records = [run.numbers for run in runs]
    if any(record.keys() != records[0].keys() for record in records):
        return describe_fields(records)
    return dict(zip(labels(fields), describe_values([*map(picker(fields), records)]), strict=True))


def describe_values(rows: Sequence[Values]) -> list[float]:
    """The statistics of columns, one after another in the order of their names, each for all columns."""
    if len(rows) == 1:
        values = [*map(float, rows[0])]
        return [*values, *values, *values, *values, *[0.0] * len(values)]
    return [*chain.from_iterable(zip(*map(_describe, zip(*rows, strict=True)), strict=True))]


def _describe(values: Values) -> tuple[float, ...]:
    """The statistics of two values or more, in the order of their names."""
    n, first = len(values), float(values[0])
    if values.count(first) == n:
        return first, first, first, first, 0.0
    ordered = sorted(values)
    if ordered[0] < -_LARGE or ordered[-1] > _LARGE:
        return tuple(describe(values).values())
    centre, middle = math.fsum(ordered) / n, n // 2
    median = float(ordered[middle]) if n % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    # The distance from the mean is the root of the sum of squares, all in C.
    return centre, float(ordered[-1]), float(ordered[0]), median, math.dist(ordered, [centre] * n) / math.sqrt(n - 1)


class FieldMeans(NamedTuple):
    """A numeric field of an agent's runs."""

    per_task: Sequence[float]
    """Its mean in each task that has it."""
    mean: float
    """Its mean over all runs that have it."""
    n: int
    binary: bool
    """All its values are 0 or 1."""


def field_means(runs: Sequence[Run], sizes: Sequence[int]) -> Iterator[tuple[str, FieldMeans]]:
    """Return every field but the reward; `sizes` says how many of `runs`, which are in order, belong to each task."""
    fields = runs[0].fields
    if all(run.fields is fields for run in runs):
        columns: Iterable[tuple[str, Sequence[Number], Sequence[int]]] = (
            (name, column, sizes)
            for name, column in zip(fields, zip(*(run.values for run in runs), strict=True), strict=True)
        )
    else:
        columns = _uneven_columns(runs, sizes)
    for name, column, lengths in columns:
        if name != REWARD_KEY_NAME:
            yield name, _field_means(column, lengths)


def _field_means(column: Sequence[Number], sizes: Sequence[int]) -> FieldMeans:
    n = len(column)
    if n == len(sizes):
        per_task: Sequence[float] = column
    else:
        ends = [*accumulate(sizes, initial=0)]
        per_task = [mean(column[start:end]) for start, end in pairwise(ends)]
    return FieldMeans(per_task, mean(column), n, are_binary(column))


def _uneven_columns(runs: Sequence[Run], sizes: Sequence[int]) -> Iterator[tuple[str, list[Number], list[int]]]:
    """Return the columns of runs that do not all have the same fields; a task that lacks a field has no part in it."""
    columns: dict[str, tuple[list[Number], Counter[int]]] = {}
    tasks = chain.from_iterable(repeat(task, size) for task, size in enumerate(sizes))
    for task, run in zip(tasks, runs, strict=True):
        for name, value in zip(run.fields, run.values, strict=True):
            column, lengths = columns.setdefault(name, ([], Counter()))
            column.append(value)
            lengths[task] += 1
    for name, (column, lengths) in columns.items():
        yield name, column, [*lengths.values()]


def rewards_of(runs: Iterable[Run]) -> list[Number]:
    return [run.reward for run in runs]


def are_binary(rewards: Sequence[Number]) -> bool:
    """Whether all are 0 or 1."""
    return rewards.count(0) + rewards.count(1) == len(rewards)
