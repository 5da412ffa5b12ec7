# SPDX-License-Identifier: Apache-2.0
"""Everything that is wrong with an input, collected while it is read and told at once: file, lines and reasons."""

from dataclasses import dataclass, field

from nemo_gym.errors import GymError

_REASONS_SHOWN = 20
_RANGES_SHOWN = 20


class BadRows(GymError, ValueError):
    """Rows of an input cannot be played."""


class BadRow(Exception):
    """One row cannot be played: why, and what is special about this one. Never leaves the expansion."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass
class _Lines:
    """Line numbers with one reason; only as many ranges as are shown are kept."""

    detail: str
    ranges: list[list[int]] = field(default_factory=list)
    count: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        if self.ranges and self.ranges[-1][1] == number - 1:
            self.ranges[-1][1] = number
        elif len(self.ranges) < _RANGES_SHOWN:
            self.ranges.append([number, number])

    def __str__(self) -> str:
        shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in self.ranges)
        unseen = self.count - sum(last - first + 1 for first, last in self.ranges)
        more = f" and {unseen} more" if unseen else ""
        return f"{'row' if self.count == 1 else 'rows'} {shown}{more}"


class BadRowReport:
    """The bad rows of one input."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._by_reason: dict[str, _Lines] = {}
        self._other_reasons = 0
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, number: int, row: BadRow) -> None:
        """Note that the row on line `number` cannot be played."""
        self._count += 1
        lines = self._by_reason.get(row.reason)
        if lines is None and len(self._by_reason) == _REASONS_SHOWN:
            self._other_reasons += 1
            return
        if lines is None:
            lines = self._by_reason[row.reason] = _Lines(f" (row {number}: {row.detail})" if row.detail else "")
        lines.add(number)

    def error(self, rows_read: int) -> BadRows:
        """Return the error that tells of all of them; rows are counted as an editor counts lines."""
        listed = [f"{self._source}: {lines}: {reason}{lines.detail}" for reason, lines in self._by_reason.items()]
        if self._other_reasons:
            listed.append(f"{self._source}: {self._other_reasons} more rows for other reasons")
        head = f"{self._count} of {rows_read} rows of {self._source} cannot be played; nothing was started."
        return BadRows("\n".join([head, *listed]))
