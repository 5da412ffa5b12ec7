# SPDX-License-Identifier: Apache-2.0
"""Two rollouts block by block, up to where they part; two files task by task, and which did better on which.

Whether the difference between two files means anything is computed as `gym eval compare` does it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from nemo_gym._metrics.describe import mean
from nemo_gym._reports.conversation import Block
from nemo_gym._reports.index import Index
from nemo_gym._reports.overview import spread
from nemo_gym._reports.rollout import Rollout, preview_of
from nemo_gym._reports.row_selection import group_rows, scored_rewards
from nemo_gym._results.compare import RESAMPLES, Comparison, RunRewards, compare_rewards

Winner = Literal["baseline", "run", "tie"]
_CHECKED = 100


@dataclass(frozen=True)
class BlockPair:
    """What both rollouts have at one place of the conversation."""

    left: Block | None
    right: Block | None
    same: bool
    at: int | None
    """The character of the text where they part, if both have a text of the same kind there."""


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

    task: int
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
        return "run" if self.difference > 0 else "baseline" if self.difference < 0 else "tie"


@dataclass(frozen=True)
class FileComparison:
    baseline: str
    run: str
    tasks: list[TaskMatch]
    """The largest difference first."""
    only_in_baseline: list[int]
    only_in_run: list[int]
    statistics: Comparison | None
    note: str
    """What to keep in mind; empty if there is nothing to say."""

    @property
    def wins(self) -> int:
        """Tasks on which the run did better than the baseline."""
        return sum(task.winner == "run" for task in self.tasks)

    @property
    def losses(self) -> int:
        return sum(task.winner == "baseline" for task in self.tasks)

    @property
    def ties(self) -> int:
        return sum(task.winner == "tie" for task in self.tasks)


@dataclass(frozen=True)
class _Task:
    label: str
    rewards: list[float]
    row: int


def compare_rollouts(left: Rollout, right: Rollout) -> RolloutDiff:
    """Where two rollouts, best of the same task, begin to differ."""
    pairs = [_pair(one, other) for one, other in zip_longest(left.blocks, right.blocks)]
    first = next((number for number, pair in enumerate(pairs) if not pair.same), None)
    return RolloutDiff(left, right, pairs, first)


def compare_files(baseline: Index, run: Index) -> FileComparison:
    """Match the scored tasks of two files, as far as they are indexed."""
    before, after = _tasks(baseline), _tasks(run)
    shared = before.keys() & after.keys()
    matches = [_match(task, before[task], after[task]) for task in shared]
    matches.sort(key=lambda match: (-abs(match.difference), match.task))
    statistics = None
    if shared:
        statistics = compare_rewards(_rewards(baseline, before), _rewards(run, after), None, RESAMPLES, 0)
    return FileComparison(
        baseline=str(baseline.path),
        run=str(run.path),
        tasks=matches,
        only_in_baseline=sorted(before.keys() - shared),
        only_in_run=sorted(after.keys() - shared),
        statistics=statistics,
        note=_note(baseline, run, matches),
    )


def first_difference(one: str, other: str) -> int | None:
    """The position of the first character that differs; None for equal texts."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _pair(left: Block | None, right: Block | None) -> BlockPair:
    if left is None or right is None:
        return BlockPair(left, right, same=False, at=None)
    alike = (left.kind, left.name, left.images) == (right.kind, right.name, right.images)
    at = first_difference(left.text, right.text)
    return BlockPair(left, right, same=alike and at is None, at=at if left.kind == right.kind else None)


def _tasks(index: Index) -> dict[int, _Task]:
    """The scored tasks of a file; agents are put together, as a comparison of runs does."""
    columns = index.columns
    groups = group_rows(columns, range(columns.n_rows))
    found: dict[int, _Task] = {}
    for place in range(len(groups)):
        rows = groups.rows_of(place)
        if rewards := scored_rewards(columns, rows):
            known = found.setdefault(columns.task[rows[0]], _Task(columns.task_label(rows[0]), [], rows[0]))
            known.rewards.extend(rewards)
    return found


def _match(task: int, before: _Task, after: _Task) -> TaskMatch:
    return TaskMatch(
        task=task,
        task_label=before.label,
        baseline_mean=mean(before.rewards),
        run_mean=mean(after.rewards),
        n_baseline=len(before.rewards),
        n_run=len(after.rewards),
        baseline_row=before.row,
        run_row=after.row,
    )


def _rewards(index: Index, tasks: dict[int, _Task]) -> RunRewards:
    return RunRewards(str(index.path), {task: one.rewards for task, one in tasks.items()}, {}, None)


def _note(baseline: Index, run: Index, matches: Sequence[TaskMatch]) -> str:
    """Files are matched by task index: say so if tasks of one index ask different things."""
    if not matches:
        return "The files have no scored task in common."
    if not (baseline.progress().complete and run.progress().complete):
        return "The files are still being read: this is how they compare so far."
    checked = spread(matches, _CHECKED)
    different = sum(_asks(baseline, one.baseline_row) != _asks(run, one.run_row) for one in checked)
    if not different:
        return ""
    return (
        f"Tasks are matched by their index, but {different} of {len(checked)} that were looked at ask different "
        f"things: perhaps the prompts differ, or the files come from different inputs."
    )


def _asks(index: Index, row: int) -> str:
    return preview_of(index.read(row))
