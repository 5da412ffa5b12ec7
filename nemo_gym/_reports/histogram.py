# SPDX-License-Identifier: Apache-2.0
"""Counts of values: one bar per value where there are few, bins of equal width where there are many."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym._metrics.describe import histogram

_FEW = 11
_BINARY = frozenset({0.0, 1.0})


@dataclass(frozen=True)
class Histogram:
    edges: list[float]
    """One more than there are counts; where `exact`, the last is repeated and each bar stands for its left edge."""
    counts: list[int]
    exact: bool = False
    """Every bar is one value."""

    @property
    def labels(self) -> list[str]:
        """What each bar stands for."""
        if self.exact:
            return [f"{edge:.4g}" for edge in self.edges[:-1]]
        return [f"{low:.3g} – {high:.3g}" for low, high in zip(self.edges, self.edges[1:], strict=False)]


def histogram_of(values: Sequence[float]) -> Histogram | None:
    """None for no values."""
    if not values:
        return None
    counted = Counter(values)
    if len(counted) <= _FEW:
        # Of right and wrong, the one that never came is shown too.
        distinct = sorted(counted.keys() | _BINARY if counted.keys() <= _BINARY else counted)
        return Histogram([*distinct, distinct[-1]], [counted[value] for value in distinct], exact=True)
    binned = histogram(values)
    return Histogram(binned["bins"], binned["counts"])
