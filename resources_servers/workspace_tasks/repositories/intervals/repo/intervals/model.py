# SPDX-License-Identifier: Apache-2.0
"""What an interval is."""

Interval = tuple[int, int]


def make(start: int, end: int) -> Interval:
    """Return the interval from `start` up to, but not including, `end`."""
    if end < start:
        raise ValueError(f"an interval cannot end at {end} before it starts at {start}")
    return (start, end)


def is_empty(interval: Interval) -> bool:
    """Tell whether nothing lies in the interval."""
    return interval[0] == interval[1]


def overlap(one: Interval, other: Interval) -> bool:
    """Tell whether two intervals share a number."""
    return one[0] < other[1] and other[0] < one[1]


def touch(one: Interval, other: Interval) -> bool:
    """Tell whether two intervals overlap, or one begins where the other ends."""
    return one[0] <= other[1] and other[0] <= one[1]
