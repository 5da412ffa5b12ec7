# SPDX-License-Identifier: Apache-2.0
"""Confidence of a number: 95 % intervals of a mean over tasks, from Student's t distribution.

Tasks are the independent units; the rollouts of one task are not, so the input is one value per task. Pass rates get
Wilson's interval, because Student's misses the truth too often near 0 and 1: `python -m nemo_gym._bench.coverage`
measures both.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from nemo_gym._results.metrics.describe import Number, choose_unit, mean

_TAIL = 0.025
_TINY = 1e-300
_ROUNDING = 1e-12
"""A spread this small relative to the mean comes from rounding."""
_PRIOR_TASKS = 2
"""How many tasks with the largest possible spread are added to the variance of pass rates."""
NO_SPREAD = "no spread seen"
ONE_TASK = "one task"
_MOST_STEPS = 500


@dataclass(frozen=True)
class Interval:
    """A mean over tasks with its 95 % interval; a single task has no interval and no error.

    Equal rewards that are not pass or fail have no interval either: nothing says how far another task may be off.
    """

    estimate: float
    low: float | None
    high: float | None
    stderr: float | None
    n_tasks: int

    @property
    def no_interval(self) -> str | None:
        """Why there is no interval; None if there is one, or if its bounds are too large for a float."""
        if self.low is not None:
            return None
        if self.n_tasks == 1:
            return ONE_TASK
        if self.stderr == 0.0:
            return NO_SPREAD
        return None

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "estimate": self.estimate,
            "ci95": None,
            "stderr": self.stderr,
            "n_tasks": self.n_tasks,
        }
        if not math.isfinite(self.estimate):
            entry["estimate"] = None
        if self.low is not None:
            entry["ci95"] = [self.low, self.high]
        elif self.no_interval is not None:
            entry["no_interval"] = self.no_interval
        return entry


def compute_interval(per_task: Sequence[float], scale: float = 1.0, *, binary: bool = False) -> Interval:
    """Return the interval of the mean of `per_task`, which is not empty, times `scale`.

    `binary` means that the values are pass rates. The interval is then Wilson's, which stays within 0 and 1, and if
    every task passed, or none did, the exact one for that many equal outcomes: five of five does not prove always.
    """
    n = len(per_task)
    unit = choose_unit(per_task)
    if unit != 1.0:
        per_task = [value / unit for value in per_task]
        scale = scale * unit
    estimate = mean(per_task)
    squares = math.fsum([(value - estimate) ** 2 for value in per_task])
    return compute_interval_of_moments(n, estimate, squares, scale, binary=binary)


def compute_interval_over_tasks(values: Sequence[Sequence[Number]], *, binary: bool) -> Interval:
    """Return the mean over all rollouts, with the interval that takes tasks as the units.

    With as many rollouts of every task, it is that of the means of the tasks. Otherwise tasks weigh as much as they
    have rollouts, as in a ratio of two sums.
    """
    n = len(values)
    means = [mean(of_task) for of_task in values]
    total = sum(map(len, values))
    if all(len(of_task) * n == total for of_task in values):
        return compute_interval(means, binary=binary)
    everything = [value for of_task in values for value in of_task]
    unit = choose_unit(everything)
    estimate = mean([value / unit for value in everything])
    weighted = zip(values, means, strict=True)
    squares = math.fsum([(len(of_task) * n / total * (one / unit - estimate)) ** 2 for of_task, one in weighted])
    return compute_interval_of_moments(n, estimate, squares, unit, binary=binary)


def compute_interval_of_moments(
    n: int, estimate: float, squares: float, scale: float = 1.0, *, binary: bool = False
) -> Interval:
    """Like `compute_interval`, for `n` values given by their mean and the sum of their squared distances from it."""
    if math.sqrt(squares) <= _ROUNDING * abs(estimate) * math.sqrt(n):
        squares = 0.0
    stderr = math.sqrt(squares / (n - 1) / n) if n > 1 else None
    low, high = (_multiply(scale, bound) for bound in _compute_bounds(n, estimate, squares, binary))
    if low is None or high is None:
        low = None
        high = None
    return Interval(scale * estimate, low, high, _multiply(scale, stderr), n)


def _multiply(scale: float, value: float | None) -> float | None:
    """Return the product; None if `value` is None or the product does not fit in a float."""
    if value is None or not math.isfinite(scale * value):
        return None
    return scale * value


def _compute_bounds(n: int, estimate: float, squares: float, binary: bool) -> tuple[float, float] | tuple[None, None]:
    if binary and estimate in (0.0, 1.0):
        reach = _TAIL ** (1.0 / n)
        if estimate:
            return reach, 1.0
        return 0.0, 1.0 - reach
    if n == 1 or (squares == 0.0 and not binary):
        return None, None
    t = compute_t_quantile(1 - _TAIL, n - 1)
    if not binary:
        reach = t * math.sqrt(squares / (n - 1) / n)
        return estimate - reach, estimate + reach
    # A few tasks with nearly equal pass rates say little about the spread of all, so begin with the largest there is.
    # Where tasks have one rollout, theirs is the largest already, and this changes nothing.
    center = (n * estimate + 0.5) / (n + 1)
    variance = (squares + _PRIOR_TASKS * center * (1 - center)) / (n - 1 + _PRIOR_TASKS)
    # Wilson's interval for as many independent outcomes as would have this variance.
    largest = estimate * (1 - estimate)
    error = t * t * variance / n
    middle = (estimate * largest + error / 2) / (largest + error)
    reach = math.sqrt(error * largest * largest + error * error / 4) / (largest + error)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


@functools.lru_cache(maxsize=4096)
def compute_t_quantile(p: float, df: int) -> float:
    """Return the value that a t-distributed variable stays below with probability `p`."""
    if p < 0.5:
        return -compute_t_quantile(1.0 - p, df)
    low = 0.0
    high = max(2.0, 2.0 * NormalDist().inv_cdf(p))
    while compute_t_cdf(high, df) < p:
        low = high
        high = 2.0 * high
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if compute_t_cdf(middle, df) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def compute_t_cdf(x: float, df: int) -> float:
    """Return the probability that a t-distributed variable stays below `x`, which is not negative."""
    return 1.0 - 0.5 * _compute_beta(df / (df + x * x), df / 2, 0.5)


def _compute_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # The fraction converges fast only on one side of the mean; the other side is its mirror image.
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _compute_beta_fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _compute_beta_fraction(1.0 - x, b, a) / b


def _compute_beta_fraction(x: float, a: float, b: float) -> float:
    """Return its continued fraction, by Lentz's method."""
    c = 1.0
    d = 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
