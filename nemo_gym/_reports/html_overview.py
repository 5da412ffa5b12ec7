# SPDX-License-Identifier: Apache-2.0
"""The overview of a file as HTML: numbers, tables, charts. The viewer takes the tables and draws its own plots."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from nemo_gym._reports.charts import bar_chart, point_chart
from nemo_gym._reports.failures import FailureCount
from nemo_gym._reports.html_parts import Html, element, joined, table
from nemo_gym._reports.index import LineProblem
from nemo_gym._reports.overview import ALL_AGENTS, AgentOverview, Overview, Point, TaskRate
from nemo_gym._results.metric_rows import number_text as shown

_PROBLEMS_SHOWN = 50
_TASKS_SHOWN = 100
_BARS_SHOWN = 40
_GROUPS = 8

Link = Callable[[int], str | None]
"""The address of a row's page; None if it has none."""


def overview_html(overview: Overview, link: Link | None = None) -> str:
    """Everything that is known of the file as a whole."""
    parts: list[str | None] = [_numbers(overview)]
    parts += [element("p", note, class_="ngv-soft") for note in overview.notes]
    if any(agent.metrics for agent in overview.agents):
        parts += [element("h2", "Metrics"), _metrics(overview.agents)]
    for agent in overview.agents:
        parts += _agent(overview, agent)
    if overview.failures:
        parts += [element("h2", "Failures"), _failures(overview.failures)]
    if overview.agents and overview.agents[0].pass_rates:
        parts += [element("h2", "Tasks, worst first"), _tasks(overview.agents[0].pass_rates, link)]
    return element("div", *parts, class_="ngv ngv-wide")


def metrics_html(agents: Sequence[AgentOverview]) -> str:
    """The metrics of the agents with their 95 % intervals."""
    return element("div", _metrics(agents), class_="ngv ngv-wide")


def failures_html(failures: Sequence[FailureCount]) -> str:
    """How often what went wrong, with examples."""
    return element("div", element("h2", "Failures"), _failures(failures), class_="ngv ngv-wide") if failures else ""


def problems_html(problems: Sequence[LineProblem], total: int) -> str:
    """The lines that cannot be shown."""
    if not total:
        return ""
    rows = [[f"line {one.line:,}", f"{one.size_bytes:,} bytes", one.reason] for one in problems[:_PROBLEMS_SHOWN]]
    more = total - len(rows)
    note = element("p", f"and {more:,} more", class_="ngv-soft") if more > 0 else None
    heading = element("h2", "1 line cannot be read" if total == 1 else f"{total:,} lines cannot be read")
    return element("div", heading, table(["line", "size", "reason"], rows), note, class_="ngv ngv-wide ngv-problems")


def _tasks(rates: Sequence[TaskRate], link: Link | None = None) -> Html:
    """Tasks with their pass rates; a task whose page is known is a link."""
    rows = []
    for rate in rates[:_TASKS_SHOWN]:
        address = link(rate.row) if link else None
        name = element("a", rate.task_label, href=address) if address else rate.task_label
        rows.append([name, str(rate.n), shown(rate.mean_reward), f"{rate.pass_rate:.0%}"])
    more = len(rates) - len(rows)
    note = element("p", f"{more:,} more tasks are not listed.", class_="ngv-soft") if more > 0 else None
    return joined([table(["task", "scored", "mean reward", "pass rate"], rows, numbers=(1, 2, 3)), note])


def _numbers(overview: Overview) -> Html:
    requested = "" if overview.n_requested is None else f" of {overview.n_requested:,}"
    tiles = [_tile(f"{overview.n_rows:,}", "rows"), _tile(f"{overview.n_tasks:,}", "tasks")]
    if overview.n_scored:
        tiles.append(_tile(f"{overview.n_scored:,}{requested}", "scored rollouts"))
    if overview.n_failed:
        tiles.append(_tile(f"{overview.n_failed:,}", "failed rollouts"))
    if overview.n_problems:
        tiles.append(_tile(f"{overview.n_problems:,}", "lines that cannot be read"))
    if overview.agents and (mean := overview.agents[0].mean_reward) is not None:
        tiles.insert(0, _tile(shown(mean), "mean reward"))
    return element("div", *tiles, class_="ngv-grid")


def _metrics(agents: Sequence[AgentOverview]) -> Html:
    rows = [
        [agent.agent, metric.name, metric.text, metric.interval_text, metric.scored_text]
        for agent in agents
        for metric in agent.metrics
    ]
    heading = ["agent", "metric", "value", "95 % interval", "scored"]
    if len(agents) == 1:
        return table(heading[1:], [row[1:] for row in rows], numbers=(1, 2, 3))
    return table(heading, rows, numbers=(2, 3, 4))


def _failures(failures: Sequence[FailureCount]) -> Html:
    rows = [
        [
            element("b", one.kind),
            f"{one.count:,}",
            f"{one.n_unresolved:,}",
            joined(element("div", example, class_="ngv-code ngv-clip", title=example) for example in one.examples),
        ]
        for one in failures
    ]
    return table(["kind", "failures", "rollouts never scored", "for example"], rows, numbers=(1, 2))


def _agent(overview: Overview, agent: AgentOverview) -> Iterable[Html]:
    points = [point for point in overview.points if agent.agent in (ALL_AGENTS, point.agent)]
    charts = [*_reward_charts(agent, points), *_count_charts(agent)]
    if overview.failures and agent is overview.agents[0]:
        kinds = overview.failures[:_BARS_SHOWN]
        charts.append(bar_chart("Failures by kind", [k.kind for k in kinds], [k.count for k in kinds], bad=True))
    usage = agent.tokens
    if usage.n_known:
        said = f"Tokens: {usage.input_total:,} read and {usage.output_total:,} written"
        means = f", {shown(usage.input_mean or 0)} and {shown(usage.output_mean or 0)} per rollout"
        yield element("h2", _heading(agent))
        yield element("p", f"{said}{means}, {usage.output_max or 0:,} written at most.", class_="ngv-soft")
    elif charts:
        yield element("h2", _heading(agent))
    if charts:
        yield element("div", *charts, class_="ngv-charts")


def _heading(agent: AgentOverview) -> str:
    return "All agents" if agent.agent == ALL_AGENTS else agent.agent


def _reward_charts(agent: AgentOverview, points: Sequence[Point]) -> Iterable[Html]:
    if agent.histogram is not None:
        yield bar_chart("Rewards (rollouts)", agent.histogram.labels, agent.histogram.counts)
    if 1 < len(agent.pass_rates) <= _BARS_SHOWN:
        labels = [rate.task_label for rate in agent.pass_rates]
        yield bar_chart(
            "Pass rate per task, worst first", labels, [rate.pass_rate for rate in agent.pass_rates], at_least=1
        )
    elif agent.pass_rate_histogram is not None and len(agent.pass_rates) > 1:
        yield bar_chart("Pass rates (tasks)", agent.pass_rate_histogram.labels, agent.pass_rate_histogram.counts)
    if agent.is_binary and points:
        # Points at 0 and 1 only would hide behind each other.
        yield _means("Mean reward by length (characters)", _by_length(points))
        yield _means("Mean reward by tool calls", _by_calls(points))
    elif points:
        rewards = [point.reward for point in points]
        yield point_chart("Reward and length", "characters written", [point.length for point in points], rewards)
        yield point_chart("Reward and tool calls", "tool calls", [point.tool_calls for point in points], rewards)


def _count_charts(agent: AgentOverview) -> Iterable[Html]:
    for title, counts in (("How responses ended", agent.finish_reasons), ("Rollouts that used a tool", agent.tools)):
        if counts:
            shown_counts = dict(list(counts.items())[:_BARS_SHOWN])
            yield bar_chart(title, list(shown_counts), list(shown_counts.values()))


def _by_length(points: Sequence[Point]) -> dict[str, list[float]]:
    ordered = sorted(points, key=lambda point: point.length)
    size = max(1, -(-len(ordered) // _GROUPS))
    groups: dict[str, list[float]] = defaultdict(list)
    for start in range(0, len(ordered), size):
        part = ordered[start : start + size]
        groups[f"≤ {shown(part[-1].length)}"] += [point.reward for point in part]
    return groups


def _by_calls(points: Sequence[Point]) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = defaultdict(list)
    for point in sorted(points, key=lambda point: point.tool_calls):
        groups[str(point.tool_calls) if point.tool_calls < _BARS_SHOWN else f"{_BARS_SHOWN} or more"].append(
            point.reward
        )
    return groups


def _means(title: str, groups: dict[str, list[float]]) -> Html:
    return bar_chart(title, list(groups), [sum(rewards) / len(rewards) for rewards in groups.values()], at_least=1)


def _tile(value: str, label: str) -> Html:
    return element("div", element("b", value), element("span", label), class_="ngv-tile")
