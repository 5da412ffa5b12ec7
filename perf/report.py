# SPDX-License-Identifier: Apache-2.0
"""What benchmarks found: one row per figure, as a table or as JSON. What follows from it is up to the caller."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson

_HEADINGS = ("name", "value", "bound", "ratio", "")


@dataclass(frozen=True)
class Row:
    """One figure; without a bound it is only reported."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def ratio(self) -> float | None:
        """The share of the bound that is used up."""
        return None if self.bound is None else self.value / self.bound

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        return "ok" if self.value <= self.bound else "OVER"


def is_over(rows: Sequence[Row]) -> bool:
    """Whether any bound is exceeded."""
    return any(row.verdict == "OVER" for row in rows)


def as_json(rows: Sequence[Row]) -> str:
    """All rows as one JSON object."""
    listed = [{**asdict(row), "ratio": row.ratio, "verdict": row.verdict or None} for row in rows]
    return orjson.dumps({"schema": 1, "rows": listed}, option=orjson.OPT_INDENT_2).decode()


def as_table(rows: Sequence[Row]) -> str:
    """All rows, aligned."""
    lines = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return "\n".join(_aligned(line, widths) for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    bound = "" if row.bound is None else _number(row.bound)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return row.name, f"{_number(row.value)} {row.unit}".rstrip(), bound, ratio, row.verdict


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(cells: tuple[str, ...], widths: Sequence[int]) -> str:
    name, value, *numbers, verdict = cells
    right = (cell.rjust(width) for cell, width in zip(numbers, widths[2:4], strict=True))
    return "  ".join([name.ljust(widths[0]), value.ljust(widths[1]), *right, verdict]).rstrip()
