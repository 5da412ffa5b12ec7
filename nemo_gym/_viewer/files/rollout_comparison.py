# SPDX-License-Identifier: Apache-2.0
"""Compare two rollouts block by block, up to where they diverge, and two files task by task.

Statistical significance is computed as in `gym eval compare`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from nemo_gym._results.metrics.describe import mean
from nemo_gym._results.metrics.paired_comparison import Comparison, RunRewards, compare_rewards
from nemo_gym._viewer.files.conversation_blocks import Block
from nemo_gym._viewer.files.file_index import Index
from nemo_gym._viewer.files.one_rollout import Rollout, preview_question
from nemo_gym._viewer.files.row_selection import group_rows, list_scored_rewards, pick_evenly

Winner = Literal["baseline", "run", "tie"]
_CHECKED = 100


@dataclass(frozen=True)
class BlockPair:
    """What both rollouts have at one position in the conversation."""

    left: Block | None
    right: Block | None
    same: bool
    at: int | None
    """The character where the texts diverge, if both have a text of the same kind there."""


@dataclass(frozen=True)
class RolloutDiff:
    left: Rollout
    right: Rollout
    pairs: list[BlockPair]
    first: int | None
    """The first pair that differs; None if all are the same."""


@dataclass(frozen=True)
class TaskMatch:
    """One task in two files."""

    task_label: str
    baseline_mean: float
    run_mean: float
    n_baseline: int
    n_run: int
    baseline_row: int
    """Its first row there."""
    run_row: int

    @property
    def difference(self) -> float:
        return self.run_mean - self.baseline_mean

    @property
    def winner(self) -> Winner:
        if self.difference > 0:
            return "run"
        if self.difference < 0:
            return "baseline"
        return "tie"


@dataclass(frozen=True)
class FileComparison:
    baseline: str
    run: str
    tasks: list[TaskMatch]
    """Largest difference first."""
    only_in_baseline: list[int]
    only_in_run: list[int]
    statistics: Comparison | None
    note: str
    """Caveats; empty if there are none."""


def compare_rollouts(left: Rollout, right: Rollout) -> RolloutDiff:
    """Find where two rollouts, preferably of the same task, begin to differ."""
    pairs = [_pair_blocks(one, other) for one, other in zip_longest(left.blocks, right.blocks)]
    first = next((number for number, pair in enumerate(pairs) if not pair.same), None)
    return RolloutDiff(left, right, pairs, first)


def compare_files(baseline: Index, run: Index) -> FileComparison:
    """Match the scored tasks of two files, as far as they are indexed."""
    before = _list_scored_tasks(baseline)
    after = _list_scored_tasks(run)
    shared = before.keys() & after.keys()
    matches = [
        TaskMatch(
            task_label=baseline.columns.label_task(before[task][0]),
            baseline_mean=mean(before[task][1]),
            run_mean=mean(after[task][1]),
            n_baseline=len(before[task][1]),
            n_run=len(after[task][1]),
            baseline_row=before[task][0],
            run_row=after[task][0],
        )
        for task in sorted(shared)
    ]
    matches.sort(key=lambda match: -abs(match.difference))
    statistics = None
    if shared:
        of_baseline, of_run = (
            RunRewards(str(index.path), {task: rewards for task, (_, rewards) in tasks.items()}, {}, None)
            for index, tasks in ((baseline, before), (run, after))
        )
        statistics = compare_rewards(of_baseline, of_run)
    return FileComparison(
        baseline=str(baseline.path),
        run=str(run.path),
        tasks=matches,
        only_in_baseline=sorted(before.keys() - shared),
        only_in_run=sorted(after.keys() - shared),
        statistics=statistics,
        note=_note_caveats(baseline, run, matches),
    )


def find_first_difference(one: str, other: str) -> int | None:
    """Return the position of the first character that differs; None for equal texts."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _pair_blocks(left: Block | None, right: Block | None) -> BlockPair:
    if left is None or right is None:
        return BlockPair(left, right, same=False, at=None)
    alike = (left.kind, left.name, left.images) == (right.kind, right.name, right.images)
    at = find_first_difference(left.text, right.text)
    return BlockPair(left, right, same=alike and at is None, at=at if left.kind == right.kind else None)


def _list_scored_tasks(index: Index) -> dict[int, tuple[int, list[float]]]:
    """Return the first row and the rewards of every scored task; agents are combined, as for runs."""
    columns = index.columns
    found = dict[int, tuple[int, list[float]]]()
    for rows in group_rows(columns, range(columns.n_rows)):
        if rewards := list_scored_rewards(columns, rows):
            found.setdefault(columns.task[rows[0]], (rows[0], []))[1].extend(rewards)
    return found


def _note_caveats(baseline: Index, run: Index, matches: Sequence[TaskMatch]) -> str:
    """Return the caveats, such as tasks with the same index that differ: files are matched by index."""
    if not matches:
        return "The files have no scored task in common."
    if not (baseline.progress.complete and run.progress.complete):
        return "The files are still being read: this is how they compare so far."
    checked = pick_evenly(matches, _CHECKED)
    different = sum(
        preview_question(baseline.read_row(one.baseline_row)) != preview_question(run.read_row(one.run_row))
        for one in checked
    )
    if not different:
        return ""
    return (
        f"Tasks are matched by their index, but {different} of {len(checked)} that were checked ask different "
        f"things: perhaps the prompts differ, or the files come from different inputs."
    )
