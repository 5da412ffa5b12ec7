# SPDX-License-Identifier: Apache-2.0
"""Which tasks of a run are hard, easy or mixed, and how the rewards spread: a reward profile at a glance.

A task is mixed if its own rollouts disagree; such tasks teach a model most. The command line does the printing.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nemo_gym._results.metrics.describe import Histogram, Number, format_number, make_histogram, mean
from nemo_gym._results.metrics.rollout_metrics import PASS_REWARD
from nemo_gym._viewer.files.one_rollout import preview_question
from nemo_gym._viewer.files.reward_explanation import shorten
from nemo_gym._viewer.files.row_selection import rate_passes

_LISTED = 5
_PROMPT_LENGTH = 60
_BAR_WIDTH = 40

ReadRows = Callable[[Collection[int]], Mapping[int, Mapping[str, Any]]]
"""Reads the rows of tasks."""


@dataclass(frozen=True)
class RankedTask:
    """How the rollouts of one task came out."""

    task: int
    n: int
    mean_reward: float
    std_reward: float
    """Of the population: how much the rollouts disagree."""
    pass_rate: float
    prompt: str = ""
    """The beginning of the last user message."""


@dataclass(frozen=True)
class TaskRanking:
    """The tasks at the ends of a profile."""

    n_tasks: int
    """The tasks that have rollouts."""
    pass_threshold: float
    hardest: list[RankedTask]
    easiest: list[RankedTask]
    most_mixed: list[RankedTask]
    histogram: Histogram | None
    """Of the rewards of all rollouts."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yield a title and rows, the first row being the heading, for each non-empty part."""
        if self.histogram is not None:
            most = max(self.histogram.counts)
            bars = [
                [label, str(n), "█" * max(bool(n), round(_BAR_WIDTH * n / most))]
                for label, n in zip(self.histogram.labels, self.histogram.counts, strict=True)
            ]
            yield "rewards", [["reward", "rollouts", ""], *bars]
        if self.n_tasks > _LISTED:
            parts = {"hardest tasks": self.hardest, "easiest tasks": self.easiest}
        else:
            parts = {"tasks, hardest first": self.hardest}
        pass_rate = f"pass rate (≥ {format_number(self.pass_threshold)})"
        for title, tasks in {**parts, "most mixed tasks": self.most_mixed}.items():
            if tasks:
                rows = [
                    [str(one.task), str(one.n), format_number(one.mean_reward), f"{one.pass_rate:.0%}", one.prompt]
                    for one in tasks
                ]
                yield title, [["task", "n", "mean reward", pass_rate, "last user message"], *rows]


def rank_tasks(
    rewards: Mapping[int, Sequence[Number]], read_rows: ReadRows, pass_threshold: float | None = None
) -> TaskRanking:
    """Rank the tasks whose rewards are given; `read_rows` is called only for those that are listed."""
    threshold = PASS_REWARD if pass_threshold is None else pass_threshold
    means = {task: mean(of_task) for task, of_task in rewards.items() if of_task}
    # The mean of equal rewards need not equal them exactly.
    stds = {
        task: math.dist(of_task, [means[task]] * len(of_task)) / math.sqrt(len(of_task))
        for task, of_task in rewards.items()
        if len(of_task) > 1 and min(of_task) != max(of_task)
    }
    hardest = heapq.nsmallest(_LISTED, [(average, task) for task, average in means.items()])
    easiest = heapq.nsmallest(_LISTED, [(-average, task) for task, average in means.items()])
    most_mixed = heapq.nsmallest(_LISTED, [(-std, task) for task, std in stds.items() if std > 0])
    rows = read_rows({task for _, task in (*hardest, *easiest, *most_mixed)})

    def describe(listed: list[tuple[float, int]]) -> list[RankedTask]:
        """Describe tasks, each with the beginning of its last user message, or of another text if there is none."""
        described = []
        for _, task in listed:
            # A prompt may hold anything, including what would move a terminal's cursor.
            text = "".join(char if char.isprintable() else " " for char in preview_question(rows.get(task, {})))
            n = len(rewards[task])
            passed = rate_passes(rewards[task], threshold)
            prompt = shorten(text, _PROMPT_LENGTH)
            described.append(RankedTask(task, n, means[task], stds.get(task, 0.0), passed, prompt))
        return described

    return TaskRanking(
        n_tasks=len(means),
        pass_threshold=threshold,
        hardest=describe(hardest),
        easiest=describe(easiest),
        most_mixed=describe(most_mixed),
        histogram=make_histogram([reward for of_task in rewards.values() for reward in of_task]),
    )
