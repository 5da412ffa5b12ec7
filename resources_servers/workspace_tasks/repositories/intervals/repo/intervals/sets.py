# SPDX-License-Identifier: Apache-2.0
"""Sets of numbers, as lists of intervals."""

from intervals.model import Interval, is_empty, make, overlap, touch


def merge(intervals: list[Interval]) -> list[Interval]:
    """Return the same numbers as few sorted intervals; those that touch become one, empty ones vanish."""
    merged: list[Interval] = []
    for interval in sorted(one for one in intervals if not is_empty(one)):
        if merged and touch(merged[-1], interval):
            start, end = merged[-1]
            merged[-1] = make(start, max(end, interval[1]))
        else:
            merged.append(make(*interval))
    return merged


def subtract(intervals: list[Interval], removed: list[Interval]) -> list[Interval]:
    """Return what is left of `intervals` without the numbers in `removed`."""
    left = merge(intervals)
    for hole in merge(removed):
        rest: list[Interval] = []
        for one in left:
            if not overlap(one, hole):
                rest.append(one)
                continue
            if one[0] < hole[0]:
                rest.append(make(one[0], hole[0]))
            if hole[1] < one[1]:
                rest.append(make(hole[1], one[1]))
        left = rest
    return left


def gaps(intervals: list[Interval], within: Interval) -> list[Interval]:
    """Return the parts of `within` that no interval covers."""
    return subtract([within], intervals)


def total(intervals: list[Interval]) -> int:
    """Return how many numbers the intervals hold; one that lies in several counts once."""
    return sum(end - start for start, end in merge(intervals))
