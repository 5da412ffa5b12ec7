# SPDX-License-Identifier: Apache-2.0
"""The rows of a plan in the order in which they are played: every task once, then every task again.

The file of a plan holds the rollouts of a task side by side. Played like that, a run that is interrupted would know
much about few tasks. Rows are read once and not held: of a task whose next rollout comes later, only its place is.
"""

import os
import re
from array import array
from collections.abc import Iterator
from typing import BinaryIO

from nemo_gym._rollouts.types import Row
from nemo_gym._util.jsonl import loads_line, number_lines
from nemo_gym._util.row_keys import ROLLOUT_INDEX_KEY_NAME

_LAST_MEMBER = re.compile(rb'"%b":([0-9]+)\}\s*\Z' % ROLLOUT_INDEX_KEY_NAME.encode())
_TAIL_BYTES = 64
_BUFFER_BYTES = 1 << 13


def read_by_repeat(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yield every row of the plan `path`, in order of rollout index and, within one, of the file."""
    with open(path, "rb", buffering=_BUFFER_BYTES) as file:
        later = _Later()
        for number, offset, raw in number_lines(file):
            if raw.strip():
                index = _rollout_index(raw, path, number)
                if index == 0:
                    yield loads_line(raw, path, number)
                else:
                    later.add(index, offset, number)
        while (turn := later.next_index()) is not None:
            for number, raw in later.take(turn, file):
                yield loads_line(raw, path, number)


def _rollout_index(raw: bytes, path: str | os.PathLike[str], number: int) -> int:
    found = _LAST_MEMBER.search(raw, max(len(raw) - _TAIL_BYTES, 0))
    # A plan that somebody else wrote may have its members in another order.
    return int(found[1]) if found else int(loads_line(raw, path, number).get(ROLLOUT_INDEX_KEY_NAME) or 0)


class _Later:
    """Rows to be read later, as stretches of lines whose rollout indices follow one another: some 30 bytes a task."""

    def __init__(self) -> None:
        self._index, self._left = array("Q"), array("Q")
        self._offset, self._number = array("Q"), array("Q")

    def add(self, index: int, offset: int, number: int) -> None:
        """Note the row on line `number`; calls come in the order of the file."""
        if self._number and number == self._number[-1] + self._left[-1] and index == self._index[-1] + self._left[-1]:
            self._left[-1] += 1
            return
        for column, value in zip(self._columns(), (index, 1, offset, number), strict=True):
            column.append(value)

    def next_index(self) -> int | None:
        """Return the lowest rollout index that is left, None if none is."""
        return min((index for index, left in zip(self._index, self._left, strict=True) if left), default=None)

    def take(self, index: int, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Read the rows with this rollout index: number and content of each line."""
        for stretch, (its_index, left) in enumerate(zip(self._index, self._left, strict=True)):
            if left and its_index == index:
                file.seek(self._offset[stretch])
                raw = file.readline()
                yield self._number[stretch], raw
                self._offset[stretch] += len(raw)
                self._number[stretch] += 1
                self._index[stretch] += 1
                self._left[stretch] -= 1

    def _columns(self) -> "tuple[array[int], ...]":
        return self._index, self._left, self._offset, self._number
