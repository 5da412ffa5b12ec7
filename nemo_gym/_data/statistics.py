# SPDX-License-Identifier: Apache-2.0
"""Count, average, extremes and standard deviation of numbers, rounded as a metrics file has them."""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from nemo_gym._metrics.describe import describe

# Sums of squares of larger numbers would overflow.
_LARGE = 1e150


class Chunk(NamedTuple):
    """Numbers, each of which counts `repeats` times."""

    values: "array[float]"
    repeats: int


def statistics(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """The object that a metrics file has for numbers; zeros if there are none."""
    filled = [chunk for chunk in chunks if chunk.values]
    count = sum(len(chunk.values) * chunk.repeats for chunk in filled)
    if not count:
        return _entry(0, 0.0, 0.0, 0.0, 0.0)
    low, high = min(min(chunk.values) for chunk in filled), max(max(chunk.values) for chunk in filled)
    if low == high:
        return _entry(count, low, low, high, 0.0)
    if max(-low, high) > _LARGE:
        described = describe(list(_repeated(filled)))
        return _entry(count, described["mean"], low, high, described["std"])
    average = math.fsum(_repeated(filled)) / count
    return _entry(count, average, low, high, _deviation(filled, average, count))


def rounded(number: float) -> float:
    """To 2 decimals, or to 3 where the number is smaller than 1."""
    return round(float(number), 2 if abs(number) >= 1 else 3)


def _deviation(chunks: Iterable[Chunk], average: float, count: int) -> float:
    """The sample standard deviation (n - 1); 0 for a single value."""
    if count < 2:
        return 0.0
    squares = [Chunk(array("d", [(far := value - average) * far for value in values]), n) for values, n in chunks]
    return math.sqrt(math.fsum(_repeated(squares)) / (count - 1))


def _repeated(chunks: Iterable[Chunk]) -> Iterator[float]:
    return chain.from_iterable(chain.from_iterable(repeat(values, times)) for values, times in chunks)


def _entry(count: int, average: float, low: float, high: float, deviation: float) -> dict[str, Any]:
    return {
        "Total # non-null values": count,
        "Average": rounded(average),
        "Min": rounded(low),
        "Max": rounded(high),
        "Standard deviation": rounded(deviation),
    }
