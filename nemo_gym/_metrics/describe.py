# SPDX-License-Identifier: Apache-2.0
"""Numbers and what can be said about a list of them: mean, max, min, median, sample standard deviation, histogram.

Only finite numbers are measured. What is missing, null, NaN or infinite is left out and counted, so that one broken
value can neither poison a mean nor pass for a zero.
"""

import functools
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

LOG = logging.getLogger(__name__)

STATISTICS = ("mean", "max", "min", "median", "std")
HISTOGRAM = "histogram"
_HISTOGRAM_BINS = 10
# Sums of squares of larger numbers would overflow.
_LARGE = 1e150
# A division by a power of two is exact.
_HUGE_UNIT = 2.0**600

Number = int | float


def finite(value: object) -> Number | None:
    """`value` as a finite number (a bool is 0 or 1), or None if it is not one."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if value.bit_length() <= 1023 else None
    return None


def is_broken(value: object) -> bool:
    """A number, but not a finite one."""
    return isinstance(value, (int, float)) and finite(value) is None


def warn_of_broken(broken: Counter[str]) -> None:
    """Say once which fields held NaN or infinite values, and how many."""
    if broken:
        listed = ", ".join(f"{name!r} ({count})" for name, count in sorted(broken.items()))
        LOG.warning("values that are NaN or infinite are not counted in the metrics: %s", listed)


def mean(values: Sequence[Number]) -> float:
    """Return the exact mean, rounded once; NaN if infinities cancel each other out."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)
    except ValueError:
        return math.nan


def unit_of(values: Sequence[Number]) -> float:
    """Return what to divide `values` by so that their squares and sums don't overflow: 1, or a power of two."""
    return 1.0 if max(-min(values), max(values)) <= _LARGE else _HUGE_UNIT


def histogram(values: Sequence[Number]) -> dict[str, list[Any]]:
    """Counts in bins of equal width: `bins` holds the edges, one more than `counts`."""
    low, high = float(min(values)), float(max(values))
    width = high / _HISTOGRAM_BINS - low / _HISTOGRAM_BINS
    # Equal values, or values too close for an edge to fit between them.
    if low + width == low:
        return {"bins": [low, high], "counts": [len(values)]}
    counts = [0] * _HISTOGRAM_BINS
    for value in values:
        # Divided first: the difference of two very large numbers would overflow.
        counts[min(max(int(value / width - low / width), 0), _HISTOGRAM_BINS - 1)] += 1
    return {"bins": [*(low + width * edge for edge in range(_HISTOGRAM_BINS)), high], "counts": counts}


def describe(values: Sequence[Number]) -> dict[str, float]:
    """Return the five statistics of a list that is not empty, as floats whatever the values are."""
    return dict(zip(STATISTICS, _statistics(values), strict=True))


def _statistics(values: Sequence[Number]) -> tuple[float, ...]:
    if len(values) == 1:
        number = float(values[0])
        return number or 0.0, number, number, number, 0.0  # a sum is never -0.0
    ordered = sorted(values)
    middle = len(ordered) // 2
    centre = mean(ordered)
    median = float(ordered[middle]) if len(ordered) % 2 else mean(ordered[middle - 1 : middle + 1])
    return centre, float(ordered[-1]), float(ordered[0]), median, _std(ordered, centre)


def _std(ordered: Sequence[Number], centre: float) -> float:
    """The sample standard deviation (n - 1) around the mean."""
    largest = max(-ordered[0], ordered[-1])
    if largest > _LARGE:
        return _std([value / largest for value in ordered], centre / largest) * largest
    return math.sqrt(math.fsum([(value - centre) ** 2 for value in ordered]) / (len(ordered) - 1))


def columns(records: Iterable[Mapping[str, Number]]) -> dict[str, list[Number]]:
    """Records turned into columns, fields in order of first appearance; a record may lack some fields."""
    gathered: dict[str, list[Number]] = {}
    for record in records:
        for field, value in record.items():
            gathered.setdefault(field, []).append(value)
    return gathered


def describe_fields(records: Iterable[Mapping[str, Number]], *, histograms: bool = False) -> dict[str, Any]:
    """`<statistic>/<field>` of every field, statistic by statistic; with `histogram/<field>` if asked for."""
    gathered = columns(records)
    by_statistic = zip(*map(_statistics, gathered.values()), strict=True)
    result: dict[str, Any] = dict(zip(labels(tuple(gathered)), chain.from_iterable(by_statistic), strict=True))
    if histograms:
        result |= {f"{HISTOGRAM}/{field}": histogram(values) for field, values in gathered.items()}
    return result


# The entries of thousands of tasks have the same names: as the same strings they take a fifth of the memory.
@functools.lru_cache(maxsize=256)
def labels(fields: tuple[str, ...]) -> list[str]:
    """`<statistic>/<field>`, statistic by statistic."""
    return [f"{statistic}/{field}" for statistic in STATISTICS for field in fields]
