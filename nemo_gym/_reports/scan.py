# SPDX-License-Identifier: Apache-2.0
"""Read a JSONL file into columns, a slice at a time, and go on where it stopped when the file has grown.

Broken lines are noted and passed over. A last line without its newline counts once it is a whole object; until then it
is torn, and read again the next time.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import BinaryIO

from nemo_gym._reports.columns import Columns
from nemo_gym._reports.facts import KINDS, Facts, Kind, facts_of, loads_row

MOST_PROBLEMS = 1000
LONGEST_LINE = 1 << 28
_REASON_LENGTH = 200


@dataclass(frozen=True)
class LineProblem:
    """A line that cannot be shown."""

    line: int
    """Counts from 1."""
    offset: int
    size_bytes: int
    reason: str
    torn: bool = False
    """It is the last line and was cut off: perhaps the rest is still to come."""


@dataclass
class Scanner:
    """How far a file has been read, and what was found."""

    columns: Columns = field(default_factory=Columns)
    end: int = 0
    """All bytes before this one have been dealt with."""
    n_lines: int = 0
    tail_open: bool = False
    """The last row that was read still lacked its newline."""
    problems: list[LineProblem] = field(default_factory=list)
    n_problems: int = 0
    torn: LineProblem | None = None
    kinds: Counter[Kind] = field(default_factory=Counter)
    """How many rows of each kind there are."""

    @property
    def kind(self) -> Kind:
        """What the file holds: the kind of most rows."""
        return max(KINDS, key=lambda kind: self.kinds[kind]) if self.kinds else "other"

    def advance(self, file: BinaryIO, budget_bytes: int) -> bool:
        """Read on for about `budget_bytes`; True if the end of the file was reached."""
        file.seek(self.end)
        stop = self.end + budget_bytes
        at_end = self._close_tail(file)
        places: list[tuple[int, int, int]] = []
        found: list[Facts] = []
        while not at_end and self.end < stop:
            at_end = self._take_line(file, places, found)
        self.columns.extend(places, found)
        self.columns.publish()
        return at_end

    def all_problems(self) -> list[LineProblem]:
        return [*self.problems, self.torn] if self.torn else list(self.problems)

    def _close_tail(self, file: BinaryIO) -> bool:
        """Step over the newline that the last row lacked; True if the file has not grown."""
        if not self.tail_open:
            return False
        newline = file.read(1)
        if newline == b"\n":
            self.end, self.tail_open = self.end + 1, False
        elif newline:
            file.seek(self.end)
            self.n_lines, self.tail_open = self.n_lines - 1, False  # more follows on the same line
        return not newline

    def _take_line(self, file: BinaryIO, places: list[tuple[int, int, int]], found: list[Facts]) -> bool:
        raw = file.readline(LONGEST_LINE)
        if not raw:
            self.torn = None
            return True
        line, size = self.n_lines + 1, len(raw)
        if size == LONGEST_LINE and not raw.endswith(b"\n"):
            size += _skip_line(file)
            self._note(LineProblem(line, self.end, size, f"the line is longer than {LONGEST_LINE} bytes"))
        elif not raw.isspace():
            facts = self._facts(raw, line)
            if facts is None and self.torn is not None:
                return True
            if facts is not None:
                places.append((self.end, size, line))
                found.append(facts)
                self.kinds[facts.kind] += 1
                self.tail_open = not raw.endswith(b"\n")
        elif not raw.endswith(b"\n"):
            return True
        self.torn, self.n_lines, self.end = None, line, self.end + size
        return False

    def _facts(self, raw: bytes, line: int) -> Facts | None:
        self.torn = None
        try:
            return facts_of(loads_row(raw))
        except ValueError as error:
            torn = not raw.endswith(b"\n")
            reason = "the last line was cut off" if torn else str(error)[:_REASON_LENGTH]
            problem = LineProblem(line, self.end, len(raw), reason, torn)
            if torn:
                self.torn = problem
            else:
                self._note(problem)
            return None

    def _note(self, problem: LineProblem) -> None:
        self.n_problems += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


def _skip_line(file: BinaryIO) -> int:
    """Read past the end of the line; the number of bytes."""
    skipped = 0
    while more := file.readline(1 << 22):
        skipped += len(more)
        if more.endswith(b"\n"):
            break
    return skipped
