# SPDX-License-Identifier: Apache-2.0
"""A result row as the metrics see it: its task and rollout index, and the numbers it carries.

Everything else in a row, above all the response, is dropped here, so that a million rows fit in memory. Rows with the
same field names share one copy of them, which makes rows cheap to hold and quick to compare.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from nemo_gym._results.metrics.describe import (
    HISTOGRAM,
    Number,
    describe_columns,
    histogram,
    is_broken,
    labels,
    to_finite,
    warn_of_broken,
)
from nemo_gym._util.row_keys import (
    BOOKKEEPING_PREFIX,
    MASK_SAMPLE_KEY,
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

PASS_REWARD = 1.0
"""A rollout passes from this reward up, unless another threshold is given."""
_NEVER_NUMBERS = frozenset({str, dict, list, type(None)})
_NEVER_COUNTS = _NEVER_NUMBERS | {bool}
_MOST_NAMED = 10


class ResultsError(GymError, ValueError):
    """The results of a run cannot be used."""


class MeasuredRollout(NamedTuple):
    """One rollout, reduced to its numbers."""

    key: Key
    reward: Number | None
    """None if the row has none; results files have no such rows."""
    fields: FieldNames
    """The names of its numeric fields and token counts; rollouts read together share the object if theirs are equal."""
    values: FieldValues
    answer: object = None
    """Its answer, if the field that holds it is known."""

    @property
    def numbers(self) -> dict[str, Number]:
        return dict(zip(self.fields, self.values, strict=True))


class NumberReader:
    """Extracts the numbers of rows: numeric fields other than bookkeeping, and the token counts of the response."""

    def __init__(self) -> None:
        self.broken: Counter[str] = Counter()
        """How many values of each field were NaN or infinite, and left out."""
        self._shared: dict[FieldNames, FieldNames] = {}

    def read(self, row: Mapping[str, Any]) -> tuple[FieldNames, FieldValues]:
        """Return the names, as the same object for all rows with the same names, and the values.

        A bool is 0 or 1. A verifier's field wins over a token count of the same name.
        """
        numbers: dict[str, Number] = {}
        for fields, no_numbers in ((row, _NEVER_NUMBERS), (read_usage(row), _NEVER_COUNTS)):
            for name, value in fields.items():
                if type(value) in no_numbers or name in numbers:
                    continue
                if name.startswith(BOOKKEEPING_PREFIX) or name == MASK_SAMPLE_KEY:
                    continue
                if (number := to_finite(value)) is not None:
                    numbers[name] = number
                elif is_broken(value):
                    self.broken[name] += 1
        names = tuple(numbers)
        return self._shared.setdefault(names, names), tuple(numbers.values())


def read_usage(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of the response, if the row has them."""
    response = row.get(RESPONSE_KEY_NAME)
    # Check for dict first: checking for Mapping is slow.
    if not (type(response) is dict or isinstance(response, Mapping)):
        return {}
    usage = response.get("usage")
    return usage if isinstance(usage, dict) else {}


def read_key(row: Mapping[str, Any]) -> Key:
    """Return the identity of a row; a missing index counts as 0."""
    return row.get(TASK_INDEX_KEY_NAME) or 0, row.get(ROLLOUT_INDEX_KEY_NAME) or 0


def measure(results: Iterable[Mapping[str, Any]]) -> list[MeasuredRollout]:
    """Return the numbers of every result, by task and rollout; raise ValueError if two are the same rollout."""
    reader = NumberReader()
    measured = []
    for result in results:
        fields, values = reader.read(result)
        reward = None
        if REWARD_KEY_NAME in fields:
            reward = values[fields.index(REWARD_KEY_NAME)]
        measured.append(MeasuredRollout(read_key(result), reward, fields, values))
    warn_of_broken(reader.broken)
    require_distinct((one.key for one in measured), "results")
    return sorted(measured, key=itemgetter(0))


def require_distinct(keys: Iterable[Key], what: str) -> None:
    """Raise a ValueError that names the keys which occur more than once."""
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{len(repeated)} (task, rollout) pairs occur more than once among the {what}: {name_rollouts(repeated)}\n"
            f"hint: every row needs its own {TASK_INDEX_KEY_NAME!r} and {ROLLOUT_INDEX_KEY_NAME!r}; "
            f"a row without them counts as 0:0"
        )


def name_rollouts(keys: Collection[Key]) -> str:
    """Format keys as `t:r, t:r, …` for a message."""
    named = ", ".join(f"{task}:{rollout}" for task, rollout in sorted(keys)[:_MOST_NAMED])
    return named if len(keys) <= _MOST_NAMED else f"{named} and {len(keys) - _MOST_NAMED} more"


def group_by_task(rollouts: Iterable[MeasuredRollout]) -> Iterator[tuple[int, list[MeasuredRollout]]]:
    """Yield every task with its rollouts; `rollouts` must be in order."""
    return ((task, [*of_task]) for task, of_task in groupby(rollouts, key=lambda rollout: rollout.key[0]))


def list_rewards(rollouts: Iterable[MeasuredRollout]) -> list[Number]:
    """Return the rewards of the rollouts that have one."""
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]


def describe_rollouts(rollouts: Sequence[MeasuredRollout], *, histograms: bool = False) -> dict[str, Any]:
    """Return `<statistic>/<field>` of every field, by statistic; also `histogram/<field>` if asked for."""
    if len(rollouts) == 1 and not histograms:  # the most common case: one value is its own mean, extreme and median
        [rollout] = rollouts
        values = [*map(float, rollout.values)]
        return dict(zip(labels(rollout.fields), [*values * 4, *[0.0] * len(values)], strict=True))
    columns = _collect_columns(rollouts)
    described: dict[str, Any] = dict(zip(labels(tuple(columns)), describe_columns(columns.values()), strict=True))
    if histograms:
        described |= {f"{HISTOGRAM}/{name}": histogram(column) for name, column in columns.items()}
    return described


def collect_fields(tasks: Iterable[Sequence[MeasuredRollout]]) -> Iterator[tuple[str, list[Sequence[Number]]]]:
    """Yield every field except the reward with its values in each task that has it."""
    columns: dict[str, list[Sequence[Number]]] = {}
    for of_task in tasks:
        for name, values in _collect_columns(of_task).items():
            columns.setdefault(name, []).append(values)
    columns.pop(REWARD_KEY_NAME, None)
    yield from columns.items()


def _collect_columns(rollouts: Sequence[MeasuredRollout]) -> dict[str, Sequence[Number]]:
    """Return the values of every field, in order of first appearance; rollouts need not have the same fields."""
    fields = rollouts[0].fields if rollouts else ()
    if all(rollout.fields is fields for rollout in rollouts):
        return dict(zip(fields, zip(*(rollout.values for rollout in rollouts), strict=True), strict=True))
    columns: dict[str, list[Number]] = {}
    for rollout in rollouts:
        for name, value in zip(rollout.fields, rollout.values, strict=True):
            columns.setdefault(name, []).append(value)
    return {**columns}
