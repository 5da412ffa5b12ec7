# SPDX-License-Identifier: Apache-2.0
"""Whole files as HTML, for the viewer and for reports: the overview of one file, the comparison of two."""

from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from nemo_gym._results.aggregate_files import METRIC_HEADING
from nemo_gym._results.metrics.describe import format_number
from nemo_gym._viewer.files.columns import LineProblem
from nemo_gym._viewer.files.conversation_blocks import Block, format_json
from nemo_gym._viewer.files.file_overview import ALL_AGENTS, AgentOverview, FailureCount, Overview, Point, TaskRate
from nemo_gym._viewer.files.one_rollout import Rollout
from nemo_gym._viewer.files.reward_explanation import shorten
from nemo_gym._viewer.files.rollout_comparison import BlockPair, FileComparison, RolloutDiff, TaskMatch
from nemo_gym._viewer.html.blocks import render_block
from nemo_gym._viewer.html.elements import (
    Html,
    draw_bar_chart,
    draw_point_chart,
    draw_row_chart,
    element,
    fold,
    format_count,
    join,
    list_classes,
    note_more,
    render_json,
    soft,
    table,
    tile,
)
from nemo_gym._viewer.html.rollout_page import render_reward

FIRST_DIFFERENCE = "ngv-first-difference"
_PROBLEMS_SHOWN = 50
_TASKS_SHOWN = 100
_MATCHES_SHOWN = 200
_BARS_SHOWN = 40
_ROWS_SHOWN = 12
_GROUPS = 8
_TARGET_LENGTH = 300

LinkRow = Callable[[int], str | None]
"""Returns the URL of a row's page; None if it has none."""
LinkFailures = Callable[[FailureCount], str | None]
"""Returns the URL of a list of failures."""
LinkMatch = Callable[[TaskMatch], str]
"""Returns the URL of a task's two rollouts."""


# --- one file ---------------------------------------------------------------------------------------------------------


def render_overview(
    overview: Overview,
    link: LinkRow | None = None,
    *,
    agent: AgentOverview | None = None,
    link_failures: LinkFailures | None = None,
) -> Html:
    """Render all that is known about the file as a whole, or about one of its agents; with `link`, its tasks too."""
    agents = [agent] if agent else overview.agents
    parts: list[str | None] = []
    if run := overview.run:
        facts = [element("div", element("span", label), element("b", text)) for label, text in run.facts]
        config = fold("Config", element("pre", render_json(format_json(run.config))))
        parts.append(element("div", element("div", *facts, class_="ngv-run"), config, class_="ngv-folds"))
    parts += [_render_numbers(overview, next(iter(agents), None)), *map(soft, overview.notes)]
    if overview.learning_curve is not None:
        picture = f"data:image/png;base64,{b64encode(overview.learning_curve).decode()}"
        parts += [element("h2", "Learning curve"), element("img", src=picture, alt="the reward during training")]
    if any(one.metrics for one in agents):
        rows = [[one.agent, *metric.cells] for one in agents for metric in one.metrics]
        metrics = table(["agent", *METRIC_HEADING], rows, numbers=(2, 3, 4))
        if len(agents) == 1:
            metrics = table(METRIC_HEADING, [row[1:] for row in rows], numbers=(1, 2, 3))
        parts += [element("h2", "Metrics"), metrics]
    for one in agents:
        parts += _render_agent(overview, one)
    if overview.failures:
        parts += [element("h2", "Failures"), _render_failures(overview.failures, link_failures)]
    if link and agents and agents[0].pass_rates:
        parts += [element("h2", "Tasks, worst first"), *_render_tasks(agents[0].pass_rates, link)]
    return element("div", *parts, class_="ngv ngv-wide")


def render_problems(problems: Sequence[LineProblem], total: int) -> Html:
    """Render the lines that cannot be shown."""
    if not total:
        return Html()
    rows = [[f"line {one.line:,}", f"{one.size_bytes:,} bytes", one.reason] for one in problems[:_PROBLEMS_SHOWN]]
    heading = element("h2", f"{format_count(total, 'line')} cannot be read")
    more = note_more(total - len(rows), "are not listed.")
    return element("div", heading, table(["line", "size", "reason"], rows), more, class_="ngv ngv-wide ngv-problems")


def _render_tasks(rates: Sequence[TaskRate], link: LinkRow) -> Iterable[Html | None]:
    rows = []
    for rate in rates[:_TASKS_SHOWN]:
        name: str = rate.task_label
        if address := link(rate.row):
            name = element("a", name, href=address)
        rows.append([name, str(rate.n), format_number(rate.mean_reward), f"{rate.pass_rate:.0%}"])
    yield table(["task", "scored", "mean reward", "pass rate"], rows, numbers=(1, 2, 3))
    yield note_more(len(rates) - len(rows), "tasks are not listed.")


def _render_numbers(overview: Overview, agent: AgentOverview | None) -> Html:
    requested = "" if overview.n_requested is None else f" of {overview.n_requested:,}"
    tiles = [tile(f"{overview.n_rows:,}", "rows"), tile(f"{overview.n_tasks:,}", "tasks")]
    if overview.n_scored:
        tiles.append(tile(f"{overview.n_scored:,}{requested}", "scored rollouts"))
        tiles.append(tile(f"{overview.n_failed:,}", "failed rollouts", bad=overview.n_failed > 0))
    if overview.n_not_run:
        tiles.append(tile(f"{overview.n_not_run:,}", "rollouts not run"))
    if agent is not None:
        if agent.mean_reward is not None:
            tiles.insert(0, tile(format_number(agent.mean_reward), "mean reward"))
        if agent.n_cut_off:
            tiles.append(tile(f"{agent.n_cut_off:,}", "rollouts cut off", bad=True))
        if agent.n_with_tool_error:
            tiles.append(tile(f"{agent.n_with_tool_error:,}", "rollouts with a crashed tool", bad=True))
        if n_known := agent.tokens.n_known:
            tiles.append(tile(format_number(agent.tokens.output_total / n_known), "tokens written per rollout"))
    if overview.n_problems:
        tiles.append(tile(f"{overview.n_problems:,}", "lines that cannot be read", bad=True))
    return element("div", *tiles, class_="ngv-grid")


def _render_failures(failures: Sequence[FailureCount], link: LinkFailures | None) -> Html:
    rows = []
    for one in failures:
        kind = element("b", one.kind)
        if link and (address := link(one)):
            kind = element("a", one.kind, href=address)
        examples = [element("div", text, class_="ngv-code ngv-clip", title=text) for text in one.examples]
        rows.append([kind, f"{one.count:,}", f"{one.n_unresolved:,}", join(examples)])
    return table(["kind", "failures", "rollouts never scored", "for example"], rows, numbers=(1, 2))


def _render_agent(overview: Overview, agent: AgentOverview) -> Iterable[Html]:
    points = [point for point in overview.points if agent.agent in (ALL_AGENTS, point.agent)]
    charts = list(_draw_reward_charts(agent, points))
    for title, counts in (("How responses ended", agent.finish_reasons), ("Rollouts that used a tool", agent.tools)):
        if counts:
            charts.append(draw_row_chart(title, dict(list(counts.items())[:_ROWS_SHOWN])))
    if overview.failures and agent is overview.agents[0]:
        kinds: Counter[str] = Counter()
        for failure in overview.failures:
            kinds[failure.kind] += failure.count
        charts.append(draw_row_chart("Failures by kind", dict(kinds.most_common(_ROWS_SHOWN)), bad=True))
    usage = agent.tokens
    if usage.n_known or charts:
        yield element("h2", "All agents" if agent.agent == ALL_AGENTS else agent.agent)
    if usage.n_known:
        said = f"Tokens: {usage.input_total:,} read and {usage.output_total:,} written"
        read, written = (format_number(total / usage.n_known) for total in (usage.input_total, usage.output_total))
        yield soft(f"{said}, {read} and {written} per rollout, {usage.output_max:,} written at most.")
    if charts:
        yield element("div", *charts, class_="ngv-charts")


def _draw_reward_charts(agent: AgentOverview, points: Sequence[Point]) -> Iterable[Html]:
    if agent.histogram is not None:
        yield draw_bar_chart("Rewards (rollouts)", agent.histogram.labels, agent.histogram.counts)
    if 1 < len(agent.pass_rates) <= _BARS_SHOWN:
        labels = [rate.task_label for rate in agent.pass_rates]
        rates = [rate.pass_rate for rate in agent.pass_rates]
        yield draw_bar_chart("Pass rate per task, worst first", labels, rates, at_least=1)
    elif agent.pass_rate_histogram is not None and len(agent.pass_rates) > 1:
        yield draw_bar_chart("Pass rates (tasks)", agent.pass_rate_histogram.labels, agent.pass_rate_histogram.counts)
    if agent.is_binary and points:
        # Points at only 0 and 1 would hide behind each other.
        by_length = defaultdict[str, list[float]](list)
        by_calls = defaultdict[str, list[float]](list)
        ordered = sorted(points, key=lambda point: point.length)
        size = max(1, -(-len(ordered) // _GROUPS))
        for start in range(0, len(ordered), size):
            part = ordered[start : start + size]
            by_length[f"≤ {format_number(part[-1].length)}"] += [point.reward for point in part]
        for point in sorted(points, key=lambda point: point.tool_calls):
            label = str(point.tool_calls) if point.tool_calls < _BARS_SHOWN else f"{_BARS_SHOWN} or more"
            by_calls[label].append(point.reward)
        for title, groups in (("length (characters)", by_length), ("tool calls", by_calls)):
            if len(groups) > 1:
                means = [sum(rewards) / len(rewards) for rewards in groups.values()]
                yield draw_bar_chart(f"Mean reward by {title}", list(groups), means, at_least=1)
    elif points:
        rewards = [point.reward for point in points]
        yield draw_point_chart("Reward and length", "characters written", [point.length for point in points], rewards)
        yield draw_point_chart("Reward and tool calls", "tool calls", [point.tool_calls for point in points], rewards)


# --- two rollouts, two files ------------------------------------------------------------------------------------------


def render_rollout_diff(diff: RolloutDiff) -> Html:
    """Render both conversations in two columns, and mark where they diverge."""
    targets = []
    for name, value in diff.left.scoring.targets:
        label = element("span", f"Target, {name}", class_="ngv-soft")
        target = element("span", shorten(value, _TARGET_LENGTH), class_="ngv-code")
        targets.append(element("div", label, target, class_="ngv-field"))
    parts = []
    if targets:
        parts.append(element("div", *targets, class_="ngv-folds"))
    parts.append(element("div", _render_head(diff.left), _render_head(diff.right), class_="ngv-pair"))
    if diff.first is None:
        parts.append(soft("Both conversations are the same."))
    pairs = [_render_pair(pair, is_first=number == diff.first) for number, pair in enumerate(diff.pairs)]
    parts.append(element("div", *pairs, class_="ngv-pairs"))
    return element("div", *parts, class_="ngv ngv-wide ngv-diff")


def _render_head(rollout: Rollout) -> Html:
    about = " · ".join(filter(None, [rollout.agent, rollout.model, rollout.response_id]))
    title = element("div", element("h3", rollout.title), element("span", about, class_="ngv-soft"))
    return element("div", title, render_reward(rollout), class_="ngv-head")


def _render_pair(pair: BlockPair, *, is_first: bool) -> Html:
    def render_side(block: Block | None) -> Html:
        if block is None:
            return element("div", "The conversation ended here.", class_="ngv-none")
        if is_first:
            return render_block(block, mark=pair.at, opened=True)
        return render_block(block)

    sides = [render_side(pair.left), render_side(pair.right)]
    if not is_first:
        return element("div", *sides, class_=list_classes("ngv-pair", same=pair.same))
    heading = element("div", "The first difference", class_="ngv-parting", id=FIRST_DIFFERENCE)
    return join([heading, element("div", *sides, class_="ngv-pair first")])


def render_file_comparison(comparison: FileComparison, link: LinkMatch | None = None) -> Html:
    """Render which file did better at which task."""
    winners = Counter(match.winner for match in comparison.tasks)
    tiles = [
        tile(f"{winners['run']:,}", "tasks where the run is better"),
        tile(f"{winners['baseline']:,}", "tasks where the baseline is better"),
        tile(f"{winners['tie']:,}", "tasks with equal rewards"),
    ]
    if (one := comparison.statistics) is not None:
        label = f"difference of the mean rewards over {format_count(one.n_paired, 'task')}"
        if one.ci95 is not None:
            label += f", 95\N{NO-BREAK SPACE}% interval {one.ci95[0]:+.3g} … {one.ci95[1]:+.3g}"
        tiles.append(tile(_format_difference(one.difference), label, wide=True))
        if one.mcnemar is not None:
            tiles.append(tile(f"{one.mcnemar.p_value:.3g}", "McNemar's p: could it be chance?"))
        elif one.p_value is not None:
            label = f"p of the paired t-test: could it be chance? Not McNemar's, because {one.test_reason}"
            tiles.append(tile(f"{one.p_value:.3g}", label, wide=True))
    parts: list[str | None] = [
        element("p", "Baseline ", element("b", comparison.baseline), ", run ", element("b", comparison.run)),
    ]
    if comparison.note:
        parts.append(element("p", comparison.note, class_="ngv-warning"))
    parts.append(element("div", *tiles, class_="ngv-grid"))
    if comparison.tasks:
        rows = [_list_match_cells(match, link) for match in comparison.tasks[:_MATCHES_SHOWN]]
        parts.append(table(["task", "baseline", "run", "difference", "better"], rows, numbers=(1, 2, 3)))
        parts.append(note_more(len(comparison.tasks) - _MATCHES_SHOWN, "tasks differ less."))
    for name, missing in (("baseline", comparison.only_in_baseline), ("run", comparison.only_in_run)):
        if missing:
            numbers = ", ".join(map(str, missing[:20]))
            if len(missing) > 20:
                numbers += " …"
            parts.append(soft(f"{len(missing):,} tasks only in the {name}: {numbers}"))
    return element("div", *parts, class_="ngv ngv-wide")


def _list_match_cells(match: TaskMatch, link: LinkMatch | None) -> list[str]:
    means = [
        join([format_number(mean), " ", element("span", f"(n = {n})", class_="ngv-soft ngv-number-of")])
        for mean, n in ((match.baseline_mean, match.n_baseline), (match.run_mean, match.n_run))
    ]
    mood = {"run": "good", "baseline": "bad", "tie": ""}[match.winner]
    name: str = match.task_label
    if link:
        name = element("a", name, href=link(match))
    return [
        name,
        *means,
        _format_difference(match.difference),
        element("span", match.winner, class_=f"ngv-badge {mood}"),
    ]


def _format_difference(difference: float) -> str:
    return f"{difference:+.4g}" if difference else "0"
