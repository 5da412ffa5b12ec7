# SPDX-License-Identifier: Apache-2.0
"""What benchmarks found: one row per figure, and the table of them. What follows from it is up to the caller."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median, quantiles
from typing import Any, Literal

Better = Literal["lower", "higher", "neither"]
_HEADINGS = ("name", "value", "spread", "bound", "ratio", "")
_NUMBERS = (2, 3, 4)
_ENOUGH_FOR_QUARTILES = 5


class LeftOut(Exception):
    """A part that cannot be measured here: why, and what to do about it."""


@dataclass(frozen=True)
class Point:
    """Where a figure stands on a curve of the picture."""

    chart: str
    """The title of the chart, with the unit."""
    line: str
    x: float
    x_name: str


@dataclass(frozen=True)
class Row:
    """One figure; without a bound it is only reported."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    samples: tuple[float, ...] = ()
    """The figure of each round, or of each run if there were several; empty if it was taken once."""
    point: Point | None = None

    @classmethod
    def of_samples(cls, name: str, samples: Sequence[float], unit: str, bound: float | None = None) -> "Row":
        """Return the median of what the rounds gave, with its spread."""
        return cls(name, median(samples), unit, bound, tuple(samples))

    @property
    def ratio(self) -> float | None:
        """The share of the bound that is used up."""
        return None if self.bound is None else self.value / self.bound

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        return "ok" if self.value <= self.bound else "OVER"

    @property
    def spread(self) -> tuple[float, float] | None:
        """The middle half of the samples if there are enough of them, else the lowest and the highest."""
        if len(self.samples) < 2:
            return None
        if len(self.samples) < _ENOUGH_FOR_QUARTILES:
            return min(self.samples), max(self.samples)
        low, _, high = quantiles(self.samples, n=4, method="inclusive")
        return low, high

    @property
    def better(self) -> Better:
        """Which way the figure should go, by its unit."""
        if "/s" in self.unit or "a second" in self.unit:
            return "higher"
        return "neither" if self.unit in ("rollouts", "calls at the endpoint", "bytes") else "lower"


def is_over(rows: Sequence[Row]) -> bool:
    """Return whether any bound is exceeded."""
    return any(row.verdict == "OVER" for row in rows)


def merge_runs(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the rows of several runs of one part as one list: medians, with the runs' values as samples.

    A row that some run lacks keeps the values of the others.
    """
    if len(runs) == 1:
        return list(runs[0])
    found: dict[tuple[str, str], list[Row]] = {}
    for row in (row for run in runs for row in run):
        found.setdefault((row.name, row.unit), []).append(row)
    merged = []
    for same in found.values():
        values = tuple(row.value for row in same)
        merged.append(replace(same[0], value=median(values), samples=values))
    return merged


def as_object(row: Row) -> dict[str, Any]:
    """Return a row as JSON has it, with what follows from its figures."""
    derived = {
        "rounds": len(row.samples) or 1,
        "spread": row.spread,
        "ratio": row.ratio,
        "verdict": row.verdict or None,
        "better": row.better,
    }
    return {**asdict(row), **derived}


def from_object(found: dict[str, Any]) -> Row:
    """Return the row that `as_object` wrote; KeyError or TypeError if it is none."""
    point = found.get("point")
    return Row(
        str(found["name"]),
        float(found["value"]),
        str(found["unit"]),
        found.get("bound"),
        tuple(map(float, found.get("samples") or ())),
        None if point is None else Point(**point),
    )


def as_table(rows: Sequence[Row]) -> str:
    """Write all rows, aligned."""
    lines = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return "\n".join(_align(line, widths) for line in lines)


def write_number(value: float) -> str:
    """Write a figure with the digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cells(row: Row) -> tuple[str, ...]:
    bound = "" if row.bound is None else write_number(row.bound)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    spread = "" if row.spread is None else " – ".join(map(write_number, row.spread))
    return row.name, f"{write_number(row.value)} {row.unit}".rstrip(), spread, bound, ratio, row.verdict


def _align(cells: tuple[str, ...], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
