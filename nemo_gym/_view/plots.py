# SPDX-License-Identifier: Apache-2.0
"""What the plots of the Overview tab draw: columns of values, ready for a data frame. No Gradio, no pandas here."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._reports.histogram import Histogram
from nemo_gym._reports.overview import AgentOverview, Overview, Point
from nemo_gym._view.links import short

_MOST_BARS = 30
_MOST_NAMED = 12
_GROUPS = 8
_FEW_REWARDS = 5
_MOST_CHARACTERS, _SHORTEST = 45, 10
_SHARES = ("pass rate", "mean reward")
_HEADROOM = 0.05
_FEWEST = 5
"""Below so many, the axis of a count would be marked with fractions."""


@dataclass(frozen=True)
class Plot:
    """The data of one plot: columns of equal length, the first along x, the second along y; none: nothing to draw."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not any(self.columns.values())

    @property
    def x(self) -> str:
        return next(iter(self.columns))

    @property
    def y(self) -> str:
        return list(self.columns)[1]

    @property
    def order(self) -> list[Any]:
        """What stands along x, in its order."""
        return list(dict.fromkeys(self.columns[self.x]))

    @property
    def y_range(self) -> tuple[float, float]:
        """From where to where bars are drawn: shares on the scale of all shares, counts up to a whole number."""
        heights: dict[Any, float] = defaultdict(float)
        for x, y in zip(self.columns[self.x], self.columns[self.y], strict=True):
            heights[x] += y
        low, high = min(0.0, *heights.values()), max(0.0, *heights.values())
        if self.y in _SHARES and low >= 0 and high <= 1:
            return 0.0, 1.0
        room = _HEADROOM * (high - low)
        high = high if self.y in _SHARES else max(high, _FEWEST)
        return low - (room if low < 0 else 0), high + room


def rewards(agent: AgentOverview) -> Plot:
    """How many rollouts have which reward."""
    return Plot() if agent.histogram is None else _bars(agent.histogram, "reward", "rollouts")


def pass_rates(agent: AgentOverview) -> Plot:
    """The pass rate of each task, worst first; where there are many tasks, how many have which."""
    passed: dict[str, tuple[float, int]] = {}
    for one in agent.pass_rates:  # of all agents together, a task may be there several times
        share, n = passed.get(one.task_label, (0.0, 0))
        passed[one.task_label] = (share + one.pass_rate * one.n, n + one.n)
    rates = sorted((share / n, task) for task, (share, n) in passed.items() if n)
    if len(rates) <= _MOST_BARS:
        return Plot({"task": [task for _, task in rates], "pass rate": [rate for rate, _ in rates]})
    return Plot() if agent.pass_rate_histogram is None else _bars(agent.pass_rate_histogram, "pass rate", "tasks")


def by_length(points: Sequence[Point]) -> Plot:
    """The mean reward of rollouts of about the same length."""
    ordered = sorted(points, key=lambda point: point.length)
    size = max(1, -(-len(ordered) // _GROUPS))
    parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    named = [f"≤ {short(part[-1].length)}" for part in parts]
    merged: dict[str, list[Point]] = defaultdict(list)
    for name, part in zip(named, parts, strict=True):
        merged[name] += part
    return _means(merged, "characters written")


def by_tool_calls(points: Sequence[Point]) -> Plot:
    """The mean reward of rollouts with the same number of tool calls."""
    numbers = sorted({point.tool_calls for point in points})
    most = numbers[_MOST_NAMED - 1] if len(numbers) > _MOST_NAMED else None
    groups: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.tool_calls):
        more = most is not None and point.tool_calls >= most
        groups.setdefault(f"{most} or more" if more else str(point.tool_calls), []).append(point)
    return _means(groups, "tool calls")


def are_few(points: Sequence[Point]) -> bool:
    """Whether there are so few different rewards that a cloud of points would be a few lines."""
    return len({point.reward for point in points}) <= _FEW_REWARDS


def cloud(points: Sequence[Point]) -> Plot:
    """Every rollout of the sample by length and reward."""
    return Plot(
        {
            "characters written": [point.length for point in points],
            "reward": [point.reward for point in points],
            "agent": [point.agent for point in points],
        }
    )


def tokens(agents: Sequence[AgentOverview]) -> Plot:
    """Tokens read and written by a rollout of each agent, on average."""
    known = [agent for agent in agents if agent.tokens.n_known][:_MOST_NAMED]
    rows = [
        (agent.agent, kind, round(mean, 1))
        for agent in known
        for kind, mean in (("read", agent.tokens.input_mean), ("written", agent.tokens.output_mean))
        if mean is not None
    ]
    names = _fitted([name for name, _, _ in rows])
    return Plot(
        {"agent": names, "tokens per rollout": [mean for *_, mean in rows], "tokens": [kind for _, kind, _ in rows]}
    )


def failures(report: Overview) -> Plot:
    """How many rollouts failed in which way."""
    kinds = sorted(report.failures, key=lambda one: -one.count)[:_MOST_NAMED]
    return Plot({"failure": _fitted([one.kind for one in kinds]), "rollouts": [one.count for one in kinds]})


def _fitted(names: list[str]) -> list[str]:
    """Names cut so that they fit below a plot side by side, as long as they stay different."""
    distinct = set(names)
    room = max(_SHORTEST, _MOST_CHARACTERS // max(1, len(distinct)))
    cut = {name: name if len(name) <= room else f"{name[: room - 1]}…" for name in distinct}
    return [cut[name] for name in names] if len(set(cut.values())) == len(distinct) else names


def _bars(histogram: Histogram, x: str, y: str) -> Plot:
    return Plot({x: histogram.labels, y: list(histogram.counts)})


def _means(groups: dict[str, list[Point]], title: str) -> Plot:
    means = [round(sum(point.reward for point in group) / len(group), 4) for group in groups.values()]
    sizes = [len(group) for group in groups.values()]
    return Plot({title: list(groups), "mean reward": means, "rollouts": sizes})
