# SPDX-License-Identifier: Apache-2.0
"""The values that rows have in fields of their own, by field: numbers and texts, those in lists too.

What is known about a dataset beyond its fields is measured in `nemo_gym._data.dataset_metrics`.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym._data.distinct import Distinct
from nemo_gym._metrics.describe import finite

_NEVER_COUNT = frozenset({dict, type(None)})
# An integer of more bits than `finite` takes.
_TOO_LARGE = 1 << 1023


class Values:
    """The values of one field: numbers in full, texts as hashes, so that long ones cost no memory."""

    def __init__(self) -> None:
        self.numbers = array("d")
        self.texts = Distinct()

    def add(self, value: Any) -> None:
        """Count a number or a text."""
        if isinstance(value, str):
            self.texts.add(value)
        elif (number := finite(value)) is not None:
            self.numbers.append(number)


class Fields(dict[str, Values]):
    """By field, in the order in which fields first had a value that counts."""

    def add_all(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the values of all fields of `rows`."""
        if not self._add_columns(rows):
            for row in rows:
                for name, value in row.items():
                    self._add(name, value)
        for values in self.values():
            values.texts.settle()

    def __missing__(self, name: str) -> Values:
        values = self[name] = Values()
        return values

    def _add_columns(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Count field by field, which is quicker; False, and nothing counted, if it is not the same.

        It is the same for rows that all have the same fields in the same order. A field that is new must have a value
        that counts in the first row, or none at all: else it could come before one that had a value earlier.
        """
        if len(set(map(tuple, rows))) != 1:
            return False
        names = tuple(rows[0])
        columns = list(zip(*(row.values() for row in rows), strict=True))
        kinds = [set(map(type, column)) for column in columns]
        for name, column, types in zip(names, columns, kinds, strict=True):
            if name not in self and not _counts(column[0]) and not types <= _NEVER_COUNT:
                return False
        for name, column, types in zip(names, columns, kinds, strict=True):
            self._add_column(name, column, types)
        return True

    def _add_column(self, name: str, column: tuple[Any, ...], types: set[type]) -> None:
        """Count the values of one field, at once if all of them are texts or finite numbers of one type."""
        if types == {str}:
            self[name].texts.add_all(column)
        elif _all_finite(column, types):
            self[name].numbers.extend(column)
        elif not types <= _NEVER_COUNT:
            for value in column:
                self._add(name, value)

    def _add(self, name: str, value: Any) -> None:
        """Count a value, or those in a list, as values of a field, which is there only if it has one."""
        for one in value if isinstance(value, list) else (value,):
            if _counts(one):
                self[name].add(one)


def _counts(value: Any) -> bool:
    return isinstance(value, str) or finite(value) is not None


def _all_finite(column: tuple[Any, ...], types: set[type]) -> bool:
    """Whether a column is nothing but integers or nothing but floats, and `finite` would take them all."""
    if types == {float}:
        return all(map(math.isfinite, column))
    return types == {int} and min(column) > -_TOO_LARGE and max(column) < _TOO_LARGE
