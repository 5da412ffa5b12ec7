# SPDX-License-Identifier: Apache-2.0
"""A result row as the metrics see it: which rollout of which task it is, and the numbers it carries.

Everything else in a row, above all the response itself, is left behind here, so that a million rows fit in memory. The
names of the numbers are kept once for all rows that have the same, apart from the values: that makes rows cheap to hold
and quick to compare.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from nemo_gym._metrics.describe import (
    HISTOGRAM,
    Number,
    are_binary,
    describe_columns,
    finite,
    histogram,
    is_broken,
    labels,
    mean,
    warn_of_broken,
)
from nemo_gym._util.row_keys import (
    BOOKKEEPING_PREFIX,
    RESPONSE_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.errors import GymError

Key = tuple[int, int]
"""The identity of a rollout within a run: its task index and its rollout index."""
FieldNames = tuple[str, ...]
FieldValues = tuple[Number, ...]
_Pick = Callable[[Mapping[str, Number]], FieldValues]

_NEVER_NUMBERS = frozenset({str, dict, list, type(None)})
_MOST_NAMED = 10


class ResultsError(GymError, ValueError):
    """The results of a run cannot be used as they are."""


class MeasuredRollout(NamedTuple):
    """One rollout, reduced to its numbers."""

    key: Key
    reward: Number | None
    """None where the row has none; files of results have no such rows."""
    fields: FieldNames
    """The names of its numeric fields and token counts; rollouts read together share the object if theirs are equal."""
    values: FieldValues
    answer: object = None
    """What it answered, where the field that holds it is known."""

    @property
    def numbers(self) -> dict[str, Number]:
        return dict(zip(self.fields, self.values, strict=True))


class NumberReader:
    """Takes the numbers out of rows: numeric fields that are no bookkeeping, and the token counts of the response."""

    def __init__(self) -> None:
        self.broken: Counter[str] = Counter()
        """How many values of a field were NaN or infinite, and left out."""
        self._known: dict[FieldNames, tuple[FieldNames, _Pick]] = {}
        """By the names of all numbers, those of bookkeeping included."""
        self._shared: dict[FieldNames, FieldNames] = {}

    def read(self, row: Mapping[str, Any]) -> tuple[FieldNames, FieldValues]:
        """Return the names, the same object for all rows with the same names, and the values.

        A bool is 0 or 1. A field of the verifier wins over a token count of the same name.
        """
        numbers: dict[str, Number] = {}
        for name, value in row.items():
            if type(value) not in _NEVER_NUMBERS:
                self._take(numbers, name, value)
        for name, value in read_usage(row).items():
            # A token count that is a bool is no count.
            if name not in numbers and type(value) not in _NEVER_NUMBERS and type(value) is not bool:
                self._take(numbers, name, value)
        names = tuple(numbers)
        fields, pick = self._known.get(names) or self._learn(names)
        return fields, pick(numbers)

    def _take(self, numbers: dict[str, Number], name: str, value: object) -> None:
        number = finite(value)
        if number is not None:
            numbers[name] = number
        elif is_broken(value) and not name.startswith(BOOKKEEPING_PREFIX):
            self.broken[name] += 1

    def _learn(self, names: FieldNames) -> tuple[FieldNames, _Pick]:
        fields = tuple(name for name in names if not name.startswith(BOOKKEEPING_PREFIX))
        fields = self._shared.setdefault(fields, fields)
        self._known[names] = fields, _make_picker(fields)
        return self._known[names]


class FieldMeans(NamedTuple):
    """A numeric field of an agent's rollouts."""

    per_task: Sequence[float]
    """Its mean in each task that has it."""
    mean: float
    """Its mean over all rollouts that have it."""
    n: int
    binary: bool
    """All its values are 0 or 1."""


def read_usage(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of the response, if the row has them."""
    response = row.get(RESPONSE_KEY_NAME)
    usage = response.get("usage") if isinstance(response, Mapping) else None
    return usage if isinstance(usage, dict) else {}


def read_key(row: Mapping[str, Any]) -> Key:
    """Return the identity of a row; an index that is missing counts as 0."""
    return row.get(TASK_INDEX_KEY_NAME) or 0, row.get(ROLLOUT_INDEX_KEY_NAME) or 0


def measure(results: Iterable[Mapping[str, Any]]) -> list[MeasuredRollout]:
    """Return the numbers of every result, in order of task and rollout; ValueError if two are the same rollout."""
    reader = NumberReader()
    measured = []
    for result in results:
        fields, values = reader.read(result)
        reward = values[fields.index(REWARD_KEY_NAME)] if REWARD_KEY_NAME in fields else None
        measured.append(MeasuredRollout(read_key(result), reward, fields, values))
    warn_of_broken(reader.broken)
    require_distinct((one.key for one in measured), "results")
    return sorted(measured, key=itemgetter(0))


def require_distinct(keys: Iterable[Key], what: str) -> None:
    """Raise ValueError that names the keys which occur more than once."""
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{len(repeated)} (task, rollout) pairs occur more than once among the {what}: {name_rollouts(repeated)}\n"
            f"hint: every row needs its own {TASK_INDEX_KEY_NAME!r} and {ROLLOUT_INDEX_KEY_NAME!r}; "
            f"a row without them counts as 0:0"
        )


def name_rollouts(keys: Collection[Key]) -> str:
    """Write `t:r, t:r, …` for a message."""
    named = ", ".join(f"{task}:{rollout}" for task, rollout in sorted(keys)[:_MOST_NAMED])
    return named if len(keys) <= _MOST_NAMED else f"{named} and {len(keys) - _MOST_NAMED} more"


def group_by_task(rollouts: Iterable[MeasuredRollout]) -> Iterator[tuple[int, list[MeasuredRollout]]]:
    """Yield every task with its rollouts, out of rollouts in order."""
    task, of_task = -1, list[MeasuredRollout]()
    for rollout in rollouts:
        if rollout.key[0] != task:
            if of_task:
                yield task, of_task
            task, of_task = rollout.key[0], []
        of_task.append(rollout)
    if of_task:
        yield task, of_task


def list_rewards(rollouts: Iterable[MeasuredRollout]) -> list[Number]:
    """Return the rewards of the rollouts that have one."""
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]


def describe_rollouts(rollouts: Sequence[MeasuredRollout], *, histograms: bool = False) -> dict[str, Any]:
    """Return `<statistic>/<field>` of every field, statistic by statistic; with `histogram/<field>` if asked for."""
    columns = {name: column for name, column, _ in _split_columns(rollouts, [len(rollouts)])}
    described: dict[str, Any] = dict(zip(labels(tuple(columns)), describe_columns(columns.values()), strict=True))
    if histograms:
        described |= {f"{HISTOGRAM}/{name}": histogram(column) for name, column in columns.items()}
    return described


def compute_field_means(rollouts: Sequence[MeasuredRollout], sizes: Sequence[int]) -> Iterator[tuple[str, FieldMeans]]:
    """Yield every field but the reward; `sizes` says how many of `rollouts`, which are in order, are of each task."""
    for name, column, lengths in _split_columns(rollouts, sizes):
        if name != REWARD_KEY_NAME:
            n = len(column)
            if n == len(lengths):
                per_task: Sequence[float] = column
            else:
                ends = [*accumulate(lengths, initial=0)]
                per_task = [mean(column[start:end]) for start, end in pairwise(ends)]
            yield name, FieldMeans(per_task, mean(column), n, are_binary(column))


def _split_columns(
    rollouts: Sequence[MeasuredRollout], sizes: Sequence[int]
) -> Iterable[tuple[str, Sequence[Number], Sequence[int]]]:
    """Return name, values and number of values in each task of every field, in order of first appearance.

    Rollouts need not have the same fields; a task that lacks a field has no part in it.
    """
    if not rollouts:
        return []
    fields = rollouts[0].fields
    if all(rollout.fields is fields for rollout in rollouts):
        table = zip(*(rollout.values for rollout in rollouts), strict=True)
        return ((name, column, sizes) for name, column in zip(fields, table, strict=True))
    columns: dict[str, tuple[list[Number], Counter[int]]] = {}
    tasks = chain.from_iterable(repeat(task, size) for task, size in enumerate(sizes))
    for task, rollout in zip(tasks, rollouts, strict=True):
        for name, value in zip(rollout.fields, rollout.values, strict=True):
            column, lengths = columns.setdefault(name, ([], Counter()))
            column.append(value)
            lengths[task] += 1
    return ((name, column, [*lengths.values()]) for name, (column, lengths) in columns.items())


def _make_picker(fields: Sequence[str]) -> _Pick:
    """Return what takes the values of `fields` out of a record, in their order."""
    if len(fields) > 1:
        return itemgetter(*fields)
    return lambda record: tuple(record[name] for name in fields)
