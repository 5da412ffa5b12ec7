# SPDX-License-Identifier: Apache-2.0
"""Two runs of `gym bench` beside each other: which figures got better or worse by more than they spread."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nemo_gym._bench.bench_file import Bench
from nemo_gym._bench.report import Row, write_number

Verdict = Literal["better", "worse", "changed", "same"]
ASSUMED_SPREAD = 0.1
"""The share of a figure by which it may differ where neither run says how much it spreads."""


@dataclass(frozen=True)
class Change:
    """One figure then and now."""

    name: str
    unit: str
    old: float
    new: float
    verdict: Verdict

    @property
    def factor(self) -> float | None:
        """How many times the old figure the new one is; None if the old one is 0."""
        return self.new / self.old if self.old else None


def compare(old: Bench, new: Bench) -> list[Change]:
    """Return every figure that both runs have."""
    return [
        Change(now.name, now.unit, then.value, now.value, _judge(then, now))
        for now in new.rows
        if (then := old.find(now.name, now.unit)) is not None
    ]


def _judge(old: Row, new: Row) -> Verdict:
    """Say whether the spreads of the two lie apart, and on which side."""
    (old_low, old_high), (new_low, new_high) = _interval(old), _interval(new)
    if old_low <= new_high and new_low <= old_high:
        return "same"
    if new.better == "neither":
        return "changed"
    return "better" if (new.value < old.value) == (new.better == "lower") else "worse"


def _interval(row: Row) -> tuple[float, float]:
    if row.spread is not None:
        low, high = row.spread
        return min(low, row.value), max(high, row.value)
    half = abs(row.value) * ASSUMED_SPREAD / 2
    return row.value - half, row.value + half


def describe_difference(old: Bench, new: Bench) -> list[str]:
    """Say what makes two runs hard to compare: other machines, versions or parts."""
    lines = []
    for what, then, now in (("cpu", old.machine, new.machine), ("cores", old.machine, new.machine)):
        if then.get(what) != now.get(what):
            lines.append(f"another machine: {what} was {then.get(what)!r} and is {now.get(what)!r}")
    for name in sorted(old.versions.keys() | new.versions.keys()):
        was = old.versions.get(name, "none")
        is_ = new.versions.get(name, "none")
        if was != is_:
            lines.append(f"{name} was {was} and is {is_}")
    then_post, now_post = (bench.find("bare POST", "µs of CPU") for bench in (old, new))
    if then_post is not None and now_post is not None:
        was_us = write_number(then_post.value)
        is_us = write_number(now_post.value)
        lines.append(f"a bare POST took {was_us} µs of CPU and takes {is_us}: figures in µs, ms and s move with it")
    return lines


def as_table(changes: Iterable[Change]) -> list[tuple[str, ...]]:
    """Write what changed, the worst first, under headings; figures that stayed are only counted by the caller."""
    order = {"worse": 0, "changed": 1, "better": 2}
    told = sorted((one for one in changes if one.verdict != "same"), key=lambda one: order[one.verdict])
    lines: list[tuple[str, ...]] = [("figure", "was", "is", "factor", "")]
    for one in told:
        factor = "" if one.factor is None else f"{one.factor:.2f}"
        is_now = f"{write_number(one.new)} {one.unit}".rstrip()
        lines.append((one.name, write_number(one.old), is_now, factor, one.verdict))
    return lines
