# SPDX-License-Identifier: Apache-2.0
"""The facts of hundreds of thousands of rows in a few megabytes: one compact array per fact, texts kept once.

One thread appends while others read: they look at rows below `n_rows` only, which is moved on when a batch is whole.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from nemo_gym._reports.facts import UNNUMBERED, Facts

T = TypeVar("T", str, tuple[str, ...])

MOST_FIELDS = 8
TYPECODES = {
    "offset": "Q",
    "size": "I",
    "line": "I",
    "task": "q",
    "rollout": "i",
    "reward": "d",
    "agent": "i",
    "finish": "i",
    "tools": "i",
    "failure": "i",
    "flags": "B",
    "input_tokens": "i",
    "output_tokens": "i",
    "tool_calls": "i",
    "length": "Q",
}
_PLAIN = ("rollout", "reward", "flags", "input_tokens", "output_tokens", "tool_calls", "length")
_MOST_NAMED = 1000


class Names(Generic[T]):
    """Values that occur again and again, each known by its number."""

    def __init__(self, values: list[T] | None = None) -> None:
        self._values: list[T] = values or []
        self._numbers: dict[T, int] = {value: number for number, value in enumerate(self._values)}

    def number(self, value: T) -> int:
        """Its number, a new one if the value is new."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self._values)
            self._values.append(value)
        return found

    def get(self, value: T) -> int | None:
        """Its number; None if it never occurred."""
        return self._numbers.get(value)

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._values))


class Columns:
    """The facts of the rows of one file, in file order."""

    def __init__(self) -> None:
        self.n_rows = 0
        """How many rows may be read; the arrays may be ahead of it."""
        self.offset, self.size, self.line = array("Q"), array("I"), array("I")
        self.task, self.rollout = array("q"), array("i")
        self.reward = array("d")
        self.agent, self.finish, self.tools, self.failure = array("i"), array("i"), array("i"), array("i")
        self.flags = array("B")
        self.input_tokens, self.output_tokens, self.tool_calls = array("i"), array("i"), array("i")
        self.length = array("Q")
        self.agents: Names[str] = Names()
        self.finishes: Names[str] = Names()
        self.failures: Names[str] = Names()
        self.toolsets: Names[tuple[str, ...]] = Names()
        self.fields: dict[str, array[float]] = {}
        """The numbers that verifiers add to a row, by name; NaN where a row has none."""
        self.more_fields: dict[str, None] = {}
        """The names of further numbers, for which there was no room."""

    def extend(self, places: Sequence[tuple[int, int, int]], facts: Sequence[Facts]) -> None:
        """Add rows, each with the offset, size and number of its line; `publish` makes them visible."""
        if not facts:
            return
        first = len(self.offset)
        offsets, sizes, lines = zip(*places, strict=True)
        by_name: dict[str, tuple[Any, ...]] = dict(zip(Facts._fields, zip(*facts, strict=True), strict=True))
        self.offset.extend(offsets)
        self.size.extend(sizes)
        self.line.extend(lines)
        self.task.extend([first + i if task is None else task for i, task in enumerate(by_name["task"])])
        self.agent.extend(map(self.agents.number, by_name["agent"]))
        self.finish.extend(map(self.finishes.number, by_name["finish"]))
        self.tools.extend(map(self.toolsets.number, by_name["tools"]))
        self.failure.extend(map(self.failures.number, by_name["failure"]))
        for name in _PLAIN:
            getattr(self, name).extend(by_name[name])
        self._extend_fields(first, by_name["fields"])

    def publish(self) -> None:
        """Let readers see every row that was appended."""
        self.n_rows = len(self.offset)

    def reward_of(self, row: int) -> float | None:
        value = self.reward[row]
        return None if math.isnan(value) else value

    def task_label(self, row: int) -> str:
        """What to call the task of a row: its index, or a short digest where rows are not numbered."""
        task = self.task[row]
        return f"{task:012x}"[:8] if self.flags[row] & UNNUMBERED else str(task)

    def arrays(self) -> "dict[str, array[Any]]":
        """Every array by its name, but for the fields."""
        return {name: getattr(self, name) for name in TYPECODES}

    def _extend_fields(self, first: int, records: Sequence[Mapping[str, float]]) -> None:
        for name in {name: None for record in records for name in record}:
            if name not in self.fields:
                if len(self.fields) < MOST_FIELDS:
                    self.fields[name] = array("d", [math.nan]) * first
                elif len(self.more_fields) < _MOST_NAMED:
                    self.more_fields[name] = None
        for name, column in self.fields.items():
            column.extend([record.get(name, math.nan) for record in records])
