# SPDX-License-Identifier: Apache-2.0
"""Which rows of which files are bad and why, collected over all of them and told at once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym._data.rows import BadRow
from nemo_gym.errors import GymError

HINT = "a row needs `responses_create_params`, a valid Responses request; other fields are free"
# Far beyond what anybody reads, and little memory.
_MOST_REASONS = 2_000
_MOST_RANGES = 20_000


class OffendingRows(GymError, ValueError):
    """Rows of datasets are not what a dataset may hold."""


@dataclass
class _Lines:
    """The line numbers that share a reason, as ranges."""

    detail: str
    ranges: list[list[int]] = field(default_factory=list)
    count: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        if self.ranges and self.ranges[-1][1] == number - 1:
            self.ranges[-1][1] = number
        elif len(self.ranges) < _MOST_RANGES:
            self.ranges.append([number, number])

    def __str__(self) -> str:
        shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in self.ranges)
        unseen = self.count - sum(last - first + 1 for first, last in self.ranges)
        more = f" and {unseen} more" if unseen else ""
        return f"{'row' if self.count == 1 else 'rows'} {shown}{more}"


class Offending:
    """The bad rows of one file; rows are counted as an editor counts lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._by_reason: dict[str, _Lines] = {}
        self._other_reasons = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, number: int, bad: BadRow) -> None:
        self.count += 1
        for reason in bad.reasons:
            lines = self._by_reason.get(reason)
            if lines is None and len(self._by_reason) == _MOST_REASONS:
                self._other_reasons += 1
                continue
            if lines is None:
                lines = self._by_reason[reason] = _Lines(f" (row {number}: {bad.detail})" if bad.detail else "")
            lines.add(number)

    def lines(self) -> list[str]:
        """`file: rows a–b: reason (field)`, a line per reason."""
        listed = [f"{self.path}: {lines}: {reason}{lines.detail}" for reason, lines in self._by_reason.items()]
        if self._other_reasons:
            listed.append(f"{self.path}: {self._other_reasons} more rows for other reasons")
        return listed


def raise_if_any(found: Iterable[Offending], hint: str = HINT) -> None:
    """OffendingRows that lists all bad rows of all files, if there is one."""
    bad = [one for one in found if one]
    if not bad:
        return
    total = sum(one.count for one in bad)
    raise OffendingRows(
        "\n".join(
            [
                f"{total} {'row is' if total == 1 else 'rows are'} not valid; nothing was written.",
                *(line for one in bad for line in one.lines()),
                f"hint: {hint}",
            ]
        )
    )
