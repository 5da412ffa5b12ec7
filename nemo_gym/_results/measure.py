# SPDX-License-Identifier: Apache-2.0
"""The numbers of a row: its numeric fields, and the token counts of its response.

Names are kept once for all rows that have the same, and apart from the values: that is what makes rows cheap to hold
and quick to compare.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter

from nemo_gym._metrics.describe import Number
from nemo_gym._results.rows import usage_of
from nemo_gym._rollouts.types import Row
from nemo_gym._util.row_keys import BOOKKEEPING_PREFIX

Fields = tuple[str, ...]
Values = tuple[Number, ...]
_Pick = Callable[[dict[str, Number]], Values]


class Measures:
    """Takes the numbers out of rows as they were read from JSON, where every number is finite."""

    def __init__(self) -> None:
        self._known: dict[Fields, tuple[Fields, _Pick]] = {}
        """By the names of all numbers, those of bookkeeping included."""
        self._shared: dict[Fields, Fields] = {}

    def of(self, row: Row) -> tuple[Fields, Values]:
        """The names, the same object for all rows with the same names, and the values.

        A bool is 0 or 1. A field of the verifier wins over a token count of the same name.
        """
        numbers: dict[str, Number] = {}
        for name, value in row.items():
            kind = type(value)
            if kind is float or kind is int:
                numbers[name] = value
            elif kind is bool:
                numbers[name] = int(value)
        for name, value in usage_of(row).items():
            kind = type(value)
            if (kind is int or kind is float) and name not in numbers:
                numbers[name] = value
        names = tuple(numbers)
        fields, pick = self._known.get(names) or self._learnt(names)
        return fields, pick(numbers)

    def _learnt(self, names: Fields) -> tuple[Fields, _Pick]:
        fields = tuple(name for name in names if not name.startswith(BOOKKEEPING_PREFIX))
        fields = self._shared.setdefault(fields, fields)
        self._known[names] = fields, picker(fields)
        return self._known[names]


def picker(fields: Sequence[str]) -> _Pick:
    """Takes the values of `fields` out of a record, in their order."""
    if len(fields) > 1:
        return itemgetter(*fields)
    return lambda record: tuple(record[name] for name in fields)
