# SPDX-License-Identifier: Apache-2.0
"""Two rollouts beside each other, and two files task by task, as HTML."""

from collections.abc import Callable

from nemo_gym._reports.blocks import Block
from nemo_gym._reports.compare import BlockPair, FileComparison, RolloutDiff, TaskMatch
from nemo_gym._reports.conversation import Rollout
from nemo_gym._reports.html_block import block_html
from nemo_gym._reports.html_parts import Html, element, joined, table
from nemo_gym._reports.scoring import short_text
from nemo_gym._results.compare import Comparison
from nemo_gym._results.metric_rows import number_text as shown

FIRST_DIFFERENCE = "ngv-first-difference"
_TASKS_SHOWN = 200
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
    comparison: FileComparison, limit: int = _TASKS_SHOWN, link: Callable[[TaskMatch], str] | None = None
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
        _tasks(comparison, limit, link),
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
    tiles = [_tile(_signed(one.difference), label, "ngv-tile ngv-double")]
    if one.mcnemar is not None:
        tiles.append(_tile(f"{one.mcnemar.p_value:.3g}", "McNemar's p: could it be chance?"))
    return tiles


def _tasks(comparison: FileComparison, limit: int, link: Callable[[TaskMatch], str] | None) -> Html | None:
    if not comparison.tasks:
        return None
    heading = ["task", "baseline", "run", "difference", "better"]
    rows = [_task(match, link) for match in comparison.tasks[:limit]]
    more = len(comparison.tasks) - limit
    note = element("p", f"{more:,} more tasks differ less.", class_="ngv-soft") if more > 0 else None
    return joined([table(heading, rows, numbers=(1, 2, 3)), note])


def _task(match: TaskMatch, link: Callable[[TaskMatch], str] | None) -> list[str]:
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


def _tile(value: str, label: str, kind: str = "ngv-tile") -> Html:
    return element("div", element("b", value), element("span", label), class_=kind)
