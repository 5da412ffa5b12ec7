# SPDX-License-Identifier: Apache-2.0
"""The overview of a file as HTML, for the viewer and for reports: the run, numbers, tables, charts."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from nemo_gym._reports.compare import BlockPair, FileComparison, RolloutDiff, TaskMatch
from nemo_gym._reports.conversation import Block, pretty
from nemo_gym._reports.html_elements import (
    Html,
    bar_chart,
    element,
    folded,
    joined,
    json_text,
    point_chart,
    row_chart,
    table,
)
from nemo_gym._reports.html_rollout import block_html
from nemo_gym._reports.index import LineProblem
from nemo_gym._reports.overview import ALL_AGENTS, AgentOverview, FailureCount, Overview, Point, TaskRate
from nemo_gym._reports.rollout import Rollout
from nemo_gym._reports.run_files import RunDescription
from nemo_gym._reports.scoring import short_text
from nemo_gym._results.compare import Comparison
from nemo_gym._results.metric_rows import number_text as shown

_PROBLEMS_SHOWN = 50
_TASKS_SHOWN = 100
_BARS_SHOWN, _ROWS_SHOWN = 40, 12
_GROUPS = 8

Link = Callable[[int], str | None]
"""The address of a row's page; None if it has none."""


def overview_html(
    overview: Overview,
    link: Link | None = None,
    *,
    agent: AgentOverview | None = None,
    failures_link: Callable[[FailureCount], str | None] | None = None,
) -> str:
    """Everything that is known of the file as a whole, or of one agent of it.

    `link` gives the pages of tasks, which are listed only then; `failures_link` that of the failures of a kind.
    """
    agents = overview.agents if agent is None else [agent]
    parts: list[str | None] = [_run(overview.run), _numbers(overview, agents[0] if agents else None)]
    parts += [element("p", note, class_="ngv-soft") for note in overview.notes]
    if any(one.metrics for one in agents):
        parts += [element("h2", "Metrics"), _metrics(agents)]
    for one in agents:
        parts += _agent(overview, one)
    if overview.failures:
        parts += [element("h2", "Failures"), _failures(overview.failures, failures_link)]
    if link and agents and agents[0].pass_rates:
        parts += [element("h2", "Tasks, worst first"), _tasks(agents[0].pass_rates, link)]
    return element("div", *parts, class_="ngv ngv-wide")


def problems_html(problems: Sequence[LineProblem], total: int) -> str:
    """The lines that cannot be shown."""
    if not total:
        return ""
    rows = [[f"line {one.line:,}", f"{one.size_bytes:,} bytes", one.reason] for one in problems[:_PROBLEMS_SHOWN]]
    more = total - len(rows)
    note = element("p", f"and {more:,} more", class_="ngv-soft") if more > 0 else None
    heading = element("h2", "1 line cannot be read" if total == 1 else f"{total:,} lines cannot be read")
    return element("div", heading, table(["line", "size", "reason"], rows), note, class_="ngv ngv-wide ngv-problems")


def _run(run: RunDescription | None) -> Html | None:
    if run is None:
        return None
    facts = [element("div", element("span", label), element("b", text)) for label, text in run.facts]
    config = folded("Config", element("pre", json_text(pretty(run.config))))
    return element("div", element("div", *facts, class_="ngv-run"), config, class_="ngv-folds")


def _tasks(rates: Sequence[TaskRate], link: Link) -> Html:
    """Tasks with their pass rates; a task whose page is known is a link."""
    rows = []
    for rate in rates[:_TASKS_SHOWN]:
        address = link(rate.row)
        name = element("a", rate.task_label, href=address) if address else rate.task_label
        rows.append([name, str(rate.n), shown(rate.mean_reward), f"{rate.pass_rate:.0%}"])
    more = len(rates) - len(rows)
    note = element("p", f"{more:,} more tasks are not listed.", class_="ngv-soft") if more > 0 else None
    return joined([table(["task", "scored", "mean reward", "pass rate"], rows, numbers=(1, 2, 3)), note])


def _numbers(overview: Overview, agent: AgentOverview | None) -> Html:
    requested = "" if overview.n_requested is None else f" of {overview.n_requested:,}"
    tiles = [_tile(f"{overview.n_rows:,}", "rows"), _tile(f"{overview.n_tasks:,}", "tasks")]
    if overview.n_scored:
        tiles.append(_tile(f"{overview.n_scored:,}{requested}", "scored rollouts"))
        tiles.append(_tile(f"{overview.n_failed:,}", "failed rollouts", bad=overview.n_failed > 0))
    if agent is not None:
        if agent.mean_reward is not None:
            tiles.insert(0, _tile(shown(agent.mean_reward), "mean reward"))
        if agent.n_cut_off:
            tiles.append(_tile(f"{agent.n_cut_off:,}", "rollouts cut off", bad=True))
        if agent.n_with_tool_error:
            tiles.append(_tile(f"{agent.n_with_tool_error:,}", "rollouts with a crashed tool", bad=True))
        if agent.tokens.output_mean is not None:
            tiles.append(_tile(shown(agent.tokens.output_mean), "tokens written per rollout"))
    if overview.n_problems:
        tiles.append(_tile(f"{overview.n_problems:,}", "lines that cannot be read", bad=True))
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


def _failures(failures: Sequence[FailureCount], link: Callable[[FailureCount], str | None] | None) -> Html:
    rows = [
        [
            element("a", one.kind, href=address) if link and (address := link(one)) else element("b", one.kind),
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
        kinds: Counter[str] = Counter()
        for failure in overview.failures:
            kinds[failure.kind] += failure.count
        charts.append(row_chart("Failures by kind", dict(kinds.most_common(_ROWS_SHOWN)), bad=True))
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
        for title, groups in (("length (characters)", _by_length(points)), ("tool calls", _by_calls(points))):
            if len(groups) > 1:
                yield _means(f"Mean reward by {title}", groups)
    elif points:
        rewards = [point.reward for point in points]
        yield point_chart("Reward and length", "characters written", [point.length for point in points], rewards)
        yield point_chart("Reward and tool calls", "tool calls", [point.tool_calls for point in points], rewards)


def _count_charts(agent: AgentOverview) -> Iterable[Html]:
    for title, counts in (("How responses ended", agent.finish_reasons), ("Rollouts that used a tool", agent.tools)):
        if counts:
            yield row_chart(title, dict(list(counts.items())[:_ROWS_SHOWN]))


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


def _tile(value: str, label: str, *, bad: bool = False, wide: bool = False) -> Html:
    kind = f"ngv-tile{' bad' if bad else ''}{' ngv-double' if wide else ''}"
    return element("div", element("b", value), element("span", label), class_=kind)


FIRST_DIFFERENCE = "ngv-first-difference"
_MATCHES_SHOWN = 200
_TARGET_LENGTH = 300


def diff_html(diff: RolloutDiff) -> str:
    """Both conversations in two columns, with the place where they part marked."""
    heads = element("div", _head(diff.left), _head(diff.right), class_="ngv-pair")
    said = "Both conversations are the same." if diff.first is None else None
    targets = diff.left.scoring.targets
    lines = [_target(name, short_text(value, _TARGET_LENGTH)) for name, value in targets]
    target = element("div", *lines, class_="ngv-folds") if lines else None
    pairs = [_pair(pair, is_first=number == diff.first) for number, pair in enumerate(diff.pairs)]
    note = element("p", said, class_="ngv-soft") if said else None
    return element(
        "div", target, heads, note, element("div", *pairs, class_="ngv-pairs"), class_="ngv ngv-wide ngv-diff"
    )


def file_comparison_html(
    comparison: FileComparison, limit: int = _MATCHES_SHOWN, link: Callable[[TaskMatch], str] | None = None
) -> str:
    """Who won which task; `link` gives the address of a task's two rollouts."""
    tiles = [
        _tile(f"{comparison.wins:,}", "tasks where the run is better"),
        _tile(f"{comparison.losses:,}", "tasks where the baseline is better"),
        _tile(f"{comparison.ties:,}", "tasks with equal rewards"),
    ]
    if comparison.statistics is not None:
        tiles += _statistics(comparison.statistics)
    parts: list[str | None] = [
        element("p", "Baseline ", element("b", comparison.baseline), ", run ", element("b", comparison.run)),
        element("p", comparison.note, class_="ngv-warning") if comparison.note else None,
        element("div", *tiles, class_="ngv-grid"),
        _match_table(comparison, limit, link),
        _only("only in the baseline", comparison.only_in_baseline),
        _only("only in the run", comparison.only_in_run),
    ]
    return element("div", *parts, class_="ngv ngv-wide")


def _head(rollout: Rollout) -> Html:
    reward = "not scored" if rollout.reward is None else f"reward {shown(rollout.reward)}"
    said = f"failed: {rollout.failure.kind}" if rollout.failure else reward
    mood = "bad" if rollout.failure or (rollout.reward or 0) <= 0 else "good" if (rollout.reward or 0) >= 1 else "mid"
    about = " · ".join(filter(None, [rollout.agent, rollout.model, rollout.response_id]))
    title = element("div", element("h3", rollout.title), element("span", about, class_="ngv-soft"))
    return element("div", title, element("span", said, class_=f"ngv-reward {mood}"), class_="ngv-head")


def _target(name: str, text: str) -> Html:
    label = element("span", f"Target, {name}", class_="ngv-soft")
    return element("div", label, element("span", text, class_="ngv-code"), class_="ngv-field")


def _pair(pair: BlockPair, *, is_first: bool) -> Html:
    sides = [_side(block, pair.at if is_first else None, opened=is_first) for block in (pair.left, pair.right)]
    if not is_first:
        return element("div", *sides, class_="ngv-pair same" if pair.same else "ngv-pair")
    heading = element("div", "The first difference", class_="ngv-parting", id=FIRST_DIFFERENCE)
    return joined([heading, element("div", *sides, class_="ngv-pair first")])


def _side(block: Block | None, mark: int | None, *, opened: bool) -> Html:
    if block is None:
        return element("div", "The conversation has ended here.", class_="ngv-none")
    return block_html(block, mark=mark, opened=opened)


def _statistics(one: Comparison) -> list[Html]:
    interval = "" if one.ci95 is None else f", 95\N{NO-BREAK SPACE}% interval {one.ci95[0]:+.3g} … {one.ci95[1]:+.3g}"
    tasks = "1 task" if one.n_paired == 1 else f"{one.n_paired:,} tasks"
    label = f"difference of the mean rewards over {tasks}{interval}"
    tiles = [_tile(_signed(one.difference), label, wide=True)]
    if one.mcnemar is not None:
        tiles.append(_tile(f"{one.mcnemar.p_value:.3g}", "McNemar's p: could it be chance?"))
    return tiles


def _match_table(comparison: FileComparison, limit: int, link: Callable[[TaskMatch], str] | None) -> Html | None:
    if not comparison.tasks:
        return None
    heading = ["task", "baseline", "run", "difference", "better"]
    rows = [_match_cells(match, link) for match in comparison.tasks[:limit]]
    more = len(comparison.tasks) - limit
    note = element("p", f"{more:,} more tasks differ less.", class_="ngv-soft") if more > 0 else None
    return joined([table(heading, rows, numbers=(1, 2, 3)), note])


def _match_cells(match: TaskMatch, link: Callable[[TaskMatch], str] | None) -> list[str]:
    name = match.task_label
    mood = {"run": "good", "baseline": "bad", "tie": ""}[match.winner]
    return [
        element("a", name, href=link(match)) if link else name,
        _mean(match.baseline_mean, match.n_baseline),
        _mean(match.run_mean, match.n_run),
        _signed(match.difference),
        element("span", match.winner, class_=f"ngv-badge {mood}"),
    ]


def _mean(mean: float, n: int) -> Html:
    return joined([shown(mean), " ", element("span", f"(n = {n})", class_="ngv-soft ngv-number-of")])


def _signed(difference: float) -> str:
    return f"{difference:+.4g}" if difference else "0"


def _only(where: str, tasks: list[int]) -> Html | None:
    if not tasks:
        return None
    named = ", ".join(map(str, tasks[:20])) + (" …" if len(tasks) > 20 else "")
    return element("p", f"{len(tasks):,} tasks {where}: {named}", class_="ngv-soft")
