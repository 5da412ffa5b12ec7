# SPDX-License-Identifier: Apache-2.0
"""Statistics of a list of numbers: mean, max, min, median, sample standard deviation, histogram.

Only finite numbers are measured. Missing, null, NaN and infinite values are left out and counted, so that one broken
value can neither poison a mean nor pass for a zero.
"""

import functools
import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

LOG = logging.getLogger(__name__)

STATISTICS = ("mean", "max", "min", "median", "std")
HISTOGRAM = "histogram"
_HISTOGRAM_BINS = 10
_FEW = 11
_BINARY = frozenset({0.0, 1.0})
# The squares of larger numbers would overflow when summed.
_LARGE = 1e150
# Dividing by a power of two is exact.
_HUGE_UNIT = 2.0**600

Number = int | float


def to_finite(value: object) -> Number | None:
    """Return `value` as a finite number (a bool is 0 or 1), or None if it is not one."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if value.bit_length() <= 1023 else None
    return None


def is_broken(value: object) -> bool:
    """Return whether `value` is a number, but not a finite one."""
    return isinstance(value, (int, float)) and to_finite(value) is None


def warn_of_broken(broken: Counter[str]) -> None:
    """Warn once which fields held NaN or infinite values, and how many."""
    if broken:
        counts = ", ".join(f"{name!r} ({count})" for name, count in sorted(broken.items()))
        LOG.warning("NaN and infinite values are not counted in the metrics: %s", counts)


def format_number(value: float) -> str:
    """Format a number for people."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def mean(values: Sequence[Number]) -> float:
    """Return the exact mean, rounded once; NaN if infinities cancel each other out."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # of the sum; each of its parts is still a number
        parts = [value / len(values) for value in values]
    except ValueError:
        return math.nan
    try:
        return math.fsum(parts)
    except ValueError:
        return math.nan


def choose_unit(values: Sequence[Number]) -> float:
    """Return what to divide `values` by so that their squares and sums do not overflow: 1, or a power of two."""
    return 1.0 if max(-min(values), max(values)) <= _LARGE else _HUGE_UNIT


def histogram(values: Sequence[Number]) -> dict[str, list[Any]]:
    """Count values in bins of equal width: `bins` holds the edges, one more than `counts`."""
    low = float(min(values))
    high = float(max(values))
    width = high / _HISTOGRAM_BINS - low / _HISTOGRAM_BINS
    # All values are equal, or too close for an edge to fit between them.
    if low + width == low:
        return {"bins": [low, high], "counts": [len(values)]}
    counts = [0] * _HISTOGRAM_BINS
    for value in values:
        # Divide first: the difference of two very large numbers would overflow.
        counts[min(max(int(value / width - low / width), 0), _HISTOGRAM_BINS - 1)] += 1
    return {"bins": [*(low + width * edge for edge in range(_HISTOGRAM_BINS)), high], "counts": counts}


@dataclass(frozen=True)
class Histogram:
    """Counts of values: one bar per value if there are few, bins of equal width if there are many."""

    edges: list[float]
    """One more than there are counts; if `exact`, the last is repeated and each bar stands for its left edge."""
    counts: list[int]
    exact: bool = False
    """Whether every bar is one value."""

    @property
    def labels(self) -> list[str]:
        """What each bar stands for."""
        if self.exact:
            return [f"{edge:.4g}" for edge in self.edges[:-1]]
        return [f"{low:.3g} – {high:.3g}" for low, high in zip(self.edges, self.edges[1:], strict=False)]


def make_histogram(values: Sequence[float]) -> Histogram | None:
    """Count the values; None for no values."""
    if not values:
        return None
    counted = Counter(values)
    if len(counted) <= _FEW:
        # Of 0 and 1, show the one that never occurred too.
        distinct = sorted(counted.keys() | _BINARY if counted.keys() <= _BINARY else counted)
        return Histogram([*distinct, distinct[-1]], [counted[value] for value in distinct], exact=True)
    binned = histogram(values)
    return Histogram(binned["bins"], binned["counts"])


def are_binary(values: Sequence[Number]) -> bool:
    """Return whether all values are 0 or 1."""
    return values.count(0) + values.count(1) == len(values)


def describe(values: Sequence[Number]) -> dict[str, float]:
    """Return the five statistics of a non-empty list, always as floats."""
    return dict(zip(STATISTICS, _compute_statistics(values), strict=True))


def describe_columns(columns: Iterable[Sequence[Number]]) -> list[float]:
    """Return the statistics of the columns in the order of `labels`: each statistic for all columns."""
    return [*chain.from_iterable(zip(*map(_compute_statistics, columns), strict=True))]


def _compute_statistics(values: Sequence[Number]) -> tuple[float, ...]:
    n = len(values)
    first = float(values[0])
    if values.count(first) == n:
        return first, first, first, first, 0.0
    ordered = sorted(values)
    middle = n // 2
    center = mean(ordered)
    median = float(ordered[middle]) if n % 2 else mean(ordered[middle - 1 : middle + 1])
    # The distance from the mean is the root of the sum of squares, all in C and without overflow.
    distance = math.dist(ordered, [center] * n)
    if not math.isfinite(distance):  # the values are too far apart for a float to hold their difference
        unit = choose_unit(ordered)
        distance = math.dist([value / unit for value in ordered], [center / unit] * n) * unit
    return center, float(ordered[-1]), float(ordered[0]), median, distance / math.sqrt(n - 1)


# Thousands of task entries have the same names: sharing the strings takes a fifth of the memory.
@functools.lru_cache(maxsize=256)
def labels(fields: tuple[str, ...]) -> list[str]:
    """Return `<statistic>/<field>`, statistic by statistic."""
    return [f"{statistic}/{field}" for statistic in STATISTICS for field in fields]
