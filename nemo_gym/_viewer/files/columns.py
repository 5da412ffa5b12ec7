# SPDX-License-Identifier: Apache-2.0
"""Read a JSONL file into columns: the facts of hundreds of thousands of rows in a few megabytes.

`Columns` has one compact array per fact and stores every text once. One thread appends while others read: they only
look at rows below `n_rows`, which advances when a batch is complete. `Scanner` fills it one slice of the file at a
time, and continues where it stopped when the file has grown. Broken lines are noted and skipped. A last line without
its newline counts once it is a whole object; until then it is torn, and is read again next time.

Measured at 1 GB (313,801 rows, CPU): SQLite takes 51 MB of memory, 19 MB of disk and 1 ms to reopen, where this takes
74, 27 and 53; but 210 to 420 ms to sort, where this takes 97 to 130, a third more to filter and a fifth more to search.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Generic, TypeVar

from nemo_gym._viewer.files.row_facts import KINDS, UNNUMBERED, Kind, RowFacts, parse_row, read_facts

T = TypeVar("T", str, tuple[str, ...])

MOST_FIELDS = 8
_MOST_FIELD_NAMES = 1000
MOST_PROBLEMS = 1000
LONGEST_LINE = 1 << 28
_REASON_LENGTH = 200
_COPIED = ("rollout", "reward", "flags", "input_tokens", "output_tokens", "tool_calls", "length")
COLUMN_NAMES = (
    *("offset", "size", "task", "rollout", "reward", "agent", "finish", "tools", "failure", "flags"),
    *("input_tokens", "output_tokens", "tool_calls", "length"),
)
"""The arrays except for the fields, in the order in which a cache holds them."""


class Names(Generic[T]):
    """Values that occur repeatedly, each identified by a number."""

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._values: list[T] = list(values)
        self._numbers: dict[T, int] = {value: number for number, value in enumerate(self._values)}

    def add(self, value: T) -> int:
        """Return the number of a value, assigning one if the value is new."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self._values)
            self._values.append(value)
        return found

    def find(self, value: T) -> int | None:
        """Return the number of a value; None if it never occurred."""
        return self._numbers.get(value)

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._values))


class Columns:
    """The facts of a file's rows, in file order."""

    def __init__(self) -> None:
        self.n_rows = 0
        """How many rows may be read; the arrays may be ahead of it."""
        self.offset = array("Q")
        self.size = array("I")
        self.task = array("q")
        self.rollout = array("i")
        self.reward = array("d")
        self.agent = array("i")
        self.finish = array("i")
        self.tools = array("i")
        self.failure = array("i")
        self.flags = array("B")
        self.input_tokens = array("i")
        self.output_tokens = array("i")
        self.tool_calls = array("i")
        self.length = array("Q")
        self.agents: Names[str] = Names()
        self.finishes: Names[str] = Names()
        self.failures: Names[str] = Names()
        self.toolsets: Names[tuple[str, ...]] = Names()
        self.fields: dict[str, array[float]] = {}
        """The numbers that verifiers add to a row, by name; NaN where a row has none."""
        self.more_fields: dict[str, None] = {}
        """The names of further numbers that did not fit."""

    def extend(self, places: Sequence[tuple[int, int]], facts: Sequence[RowFacts]) -> None:
        """Append rows, each with the offset and the size of its line; `publish` makes them visible."""
        if not facts:
            return
        first = len(self.offset)
        offsets, sizes = zip(*places, strict=True)
        by_name: dict[str, tuple[Any, ...]] = dict(zip(RowFacts._fields, zip(*facts, strict=True), strict=True))
        self.offset.extend(offsets)
        self.size.extend(sizes)
        for row, task in enumerate(by_name["task"], first):
            self.task.append(row if task is None else task)
        self.agent.extend(map(self.agents.add, by_name["agent"]))
        self.finish.extend(map(self.finishes.add, by_name["finish"]))
        self.tools.extend(map(self.toolsets.add, by_name["tools"]))
        self.failure.extend(map(self.failures.add, by_name["failure"]))
        for name in _COPIED:
            getattr(self, name).extend(by_name[name])
        records = by_name["fields"]
        for name in {name: None for record in records for name in record}:
            if name not in self.fields:
                if len(self.fields) < MOST_FIELDS:
                    self.fields[name] = array("d", [math.nan]) * first
                elif len(self.more_fields) < _MOST_FIELD_NAMES:
                    self.more_fields[name] = None
        for name, column in self.fields.items():
            column.extend([record.get(name, math.nan) for record in records])

    def publish(self) -> None:
        """Make every appended row visible to readers."""
        self.n_rows = len(self.offset)

    def label_task(self, row: int) -> str:
        """Return a label for a row's task: its index, or a short digest if rows are not numbered."""
        task = self.task[row]
        return f"{task:012x}"[:8] if self.flags[row] & UNNUMBERED else str(task)


@dataclass(frozen=True)
class LineProblem:
    """A line that cannot be shown."""

    line: int
    """Counts from 1."""
    size_bytes: int
    reason: str


@dataclass
class Scanner:
    """How far a file has been read, and what was found."""

    columns: Columns = field(default_factory=Columns)
    end: int = 0
    """All bytes before this one have been handled."""
    n_lines: int = 0
    tail_open: bool = False
    """Whether the last row that was read still lacked its newline."""
    problems: list[LineProblem] = field(default_factory=list)
    n_problems: int = 0
    torn: LineProblem | None = None
    """The last line, if it was cut off: the rest may be still to come."""
    kinds: Counter[Kind] = field(default_factory=Counter)
    """How many rows of each kind there are."""

    @property
    def kind(self) -> Kind:
        """What the file holds: the kind of most rows."""
        return max(KINDS, key=lambda kind: self.kinds[kind]) if self.kinds else "other"

    def advance(self, file: BinaryIO, budget_bytes: int) -> bool:
        """Read about `budget_bytes` more; return whether the end of the file was reached."""
        file.seek(self.end)
        stop = self.end + budget_bytes
        at_end = self._close_tail(file)
        places: list[tuple[int, int]] = []
        found: list[RowFacts] = []
        while not at_end and self.end < stop:
            at_end = self._read_line(file, places, found)
        self.columns.extend(places, found)
        self.columns.publish()
        return at_end

    def _close_tail(self, file: BinaryIO) -> bool:
        """Step over the newline that the last row lacked; return whether the file has not grown."""
        if not self.tail_open:
            return False
        newline = file.read(1)
        if newline == b"\n":
            self.end = self.end + 1
            self.tail_open = False
        elif newline:
            file.seek(self.end)
            self.n_lines = self.n_lines - 1
            self.tail_open = False  # the same line continues
        return not newline

    def _read_line(self, file: BinaryIO, places: list[tuple[int, int]], found: list[RowFacts]) -> bool:
        """Read one line into `places` and `found`, or note its problem; return whether the file ends here."""
        raw = file.readline(LONGEST_LINE)
        self.torn = None
        if not raw:
            return True
        line = self.n_lines + 1
        size = len(raw)
        is_whole = raw.endswith(b"\n")
        if size == LONGEST_LINE and not is_whole:
            while more := file.readline(1 << 22):
                size += len(more)
                if more.endswith(b"\n"):
                    break
            self._note(LineProblem(line, size, f"the line is longer than {LONGEST_LINE} bytes"))
        elif not raw.isspace():
            try:
                facts = read_facts(parse_row(raw))
            except ValueError as error:
                if not is_whole:
                    self.torn = LineProblem(line, size, "the last line was cut off")
                    return True
                self._note(LineProblem(line, size, str(error)[:_REASON_LENGTH]))
            else:
                places.append((self.end, size))
                found.append(facts)
                self.kinds[facts.kind] += 1
                self.tail_open = not is_whole
        elif not is_whole:
            return True
        self.n_lines = line
        self.end = self.end + size
        return False

    def list_problems(self) -> list[LineProblem]:
        """Return the lines that cannot be shown, up to the first thousand."""
        return [*self.problems, *filter(None, [self.torn])]

    def _note(self, problem: LineProblem) -> None:
        self.n_problems += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
