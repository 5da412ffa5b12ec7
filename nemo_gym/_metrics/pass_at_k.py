# SPDX-License-Identifier: Apache-2.0
"""What the scores of one task say about its first k runs, for every k at once and in linear time.

A *curve* is a sequence whose element k - 1 belongs to k. Values are on the scale of the scores; percentages are made
where tasks are averaged.
"""

import functools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import accumulate

import orjson

from nemo_gym._metrics.describe import Number, mean, unit_of

Curve = Sequence[float]


def pass_curve(scores: Sequence[Number]) -> Curve:
    """pass@k: the unbiased estimate 1 - C(wrong, k)/C(n, k) for scores of 0 and 1, else the best of the first k."""
    wrong = scores.count(0)
    if wrong + scores.count(1) == len(scores):
        return _unbiased_curve(wrong, len(scores))
    return [float(best) for best in accumulate(scores, max)]


def average_curve(scores: Sequence[Number]) -> Curve:
    """pass@1[avg-of-k]: the mean of the first k."""
    curve = [total / k for k, total in enumerate(accumulate(scores), 1)]
    if not curve or math.isfinite(curve[-1]):
        return curve
    return [mean(scores[:k]) for k in range(1, len(scores) + 1)]  # their sum is too large


def majority_curve(answers: Sequence[object], scores: Sequence[Number]) -> Curve:
    """majority@k: the score of the commonest (answer, score) pair of the first k; None is no answer.

    Pairs that are equally common are averaged; without any answer the score is 0.
    """
    curve: list[float] = []
    counts: Counter[tuple[Hashable, Number]] = Counter()
    most, leaders, total = 0, 1, 0.0  # how often the commonest pairs occur, how many they are, the sum of their scores
    for answer, score in zip(answers, scores, strict=True):
        if answer is not None:
            pair = (_hashable(answer), score)
            counts[pair] += 1
            if counts[pair] > most:
                most, leaders, total = counts[pair], 1, score
            elif counts[pair] == most:
                leaders, total = leaders + 1, total + score
        curve.append(total / leaders)
    return curve


def spread_curve(scores: Sequence[Number]) -> Curve:
    """The sample standard deviation of the first k; 0 for k = 1."""
    curve: list[float] = []
    centre, squares, unit = 0.0, 0.0, unit_of(scores) if scores else 1.0
    for k, score in enumerate(scores, 1):
        # Welford's update: one pass, and no difference of two large sums.
        step = score / unit - centre
        centre += step / k
        squares += step * (score / unit - centre)
        curve.append(math.sqrt(squares / (k - 1)) * unit if k > 1 else 0.0)
    return curve


@functools.lru_cache(maxsize=1024)
def _unbiased_curve(wrong: int, n: int) -> tuple[float, ...]:
    curve = []
    all_wrong, all_ways = 1, 1  # C(wrong, k) and C(n, k), exact
    for k in range(1, n + 1):
        all_wrong = all_wrong * max(wrong - k + 1, 0) // k
        all_ways = all_ways * (n - k + 1) // k
        curve.append((all_ways - all_wrong) / all_ways)
    return tuple(curve)


def _hashable(answer: object) -> Hashable:
    # Grids and other JSON answers are compared by content.
    if isinstance(answer, (list, dict)):
        return orjson.dumps(answer, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr)
    return answer if isinstance(answer, Hashable) else repr(answer)
