# SPDX-License-Identifier: Apache-2.0
"""Which rollouts are exported: survey the files once, keep a few numbers per group, and judge each rollout by them.

A rollout is usable if it has a reward, may be trained on, and has the tokens that the format needs. A group's baseline,
pass rate, and whether its rewards are mixed are computed from its usable members only. Failures are excluded from all
of these; they are only counted.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from nemo_gym._results.metrics.rollout_metrics import PASS_REWARD, ResultsError
from nemo_gym._results.result_rows import ResultLine, read_results, require_distinct
from nemo_gym._rollouts.compact import KeySet
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.jsonl_files import loads_line

GroupKey = tuple[str | None, int]
KeepGroups = Literal["all", "mixed"]


@dataclass(frozen=True)
class Selection:
    """Which of the usable rollouts are wanted."""

    min_reward: float | None = None
    """The lowest reward of a rollout; for a pair, of the chosen one."""
    keep_groups: KeepGroups = "all"
    """`mixed`: only groups with differing rewards, since the others teach a relative policy nothing."""
    min_pass_rate: float | None = None
    """The lowest share of a group's rollouts that pass."""
    max_pass_rate: float | None = None
    pass_threshold: float = PASS_REWARD

    def __post_init__(self) -> None:
        low = self.min_pass_rate
        high = self.max_pass_rate
        for rate in (low, high):
            if rate is not None and not 0 <= rate <= 1:
                raise ResultsError(f"a pass rate lies between 0 and 1, not at {rate}")
        if low is not None and high is not None and low > high:
            raise ResultsError(
                f"no pass rate is at least {low} and at most {high}.\n"
                "hint: swap `--min-pass-rate` and `--max-pass-rate`"
            )

    @property
    def needs_groups(self) -> bool:
        """Whether a whole group must be known before one of its rollouts can be judged."""
        return self.keep_groups == "mixed" or self.min_pass_rate is not None or self.max_pass_rate is not None

    def explain_skip(self, rollout: TrainableRollout, group: "Group", *, any_reward: bool = False) -> str | None:
        """Return why a rollout is not wanted; None if it is. With `any_reward`, ignore the lowest reward."""
        if self.min_reward is not None and not any_reward and (rollout.reward or 0.0) < self.min_reward:
            return "reward too low"
        if self.keep_groups == "mixed" and not group.lowest < group.highest:
            return "all rewards of the group are the same"
        if self.min_pass_rate is not None and group.pass_rate < self.min_pass_rate:
            return "pass rate too low"
        if self.max_pass_rate is not None and group.pass_rate > self.max_pass_rate:
            return "pass rate too high"
        return None


@dataclass(slots=True)
class Group:
    """What is known about all attempts of one agent at one task."""

    size: int = 0
    failed: int = 0
    scored: int = 0
    """The usable ones."""
    passed: int = 0
    lowest: float = math.inf
    highest: float = -math.inf
    last_usable: int = -1
    """The last of its usable rows, in the survey's index of places."""
    last_failed: int = -1
    """The last of those that failed."""

    @property
    def pass_rate(self) -> float:
        return self.passed / self.scored if self.scored else 0.0


@dataclass
class Survey:
    """What a first pass over some files found: their groups, the usable rows, and what is wrong with the others."""

    files: list[Path]
    """The rollouts files, then the failures files beside them."""
    n_rollouts_files: int
    needs_tokens: bool
    pass_threshold: float
    keep_places: bool
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    """By kind of failure."""
    invalid: Counter[str] = field(default_factory=Counter)
    """By reason."""
    invalid_examples: dict[str, str] = field(default_factory=dict)
    """The first rollout with each of the reasons."""
    without_tokens: int = 0
    _usable: dict[str, bytearray] = field(default_factory=dict)
    """For each row of a rollouts file, whether it may be exported."""
    _files_of: "array[int]" = field(default_factory=lambda: array("H"))
    _offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    _sizes: "array[int]" = field(default_factory=lambda: array("Q"))
    _previous: "array[int]" = field(default_factory=lambda: array("q"))

    def note_invalid(self, rollout: TrainableRollout, reason: str) -> None:
        """Count a rollout that must not be trained on, or that the format cannot express."""
        self.invalid[reason] += 1
        self.invalid_examples.setdefault(reason, f"task {rollout.task_index}, rollout {rollout.rollout_index}")

    def look(self, line: ResultLine, file: int) -> TrainableRollout | None:
        """Count a row of the numbered file; return its rollout, not joined yet, if it is usable."""
        rollout = TrainableRollout.from_row_unjoined(line.row)
        group = self.groups.get(rollout.group) or self.groups.setdefault(rollout.group, Group())
        group.size += 1
        if rollout.reward is None:
            group.failed += 1
            self.failed[rollout.failure or "unknown"] += 1
            if self.keep_places:
                group.last_failed = self._note_place(line, file, group.last_failed)
        elif rollout.invalid is not None:
            self.note_invalid(rollout, rollout.invalid)
        elif self.needs_tokens and not rollout.has_tokens:
            self.without_tokens += 1
        else:
            group.scored += 1
            group.passed += rollout.reward >= self.pass_threshold
            group.lowest = min(group.lowest, rollout.reward)
            group.highest = max(group.highest, rollout.reward)
            if self.keep_places:
                group.last_usable = self._note_place(line, file, group.last_usable)
            return rollout
        return None

    def _note_place(self, line: ResultLine, file: int, previous: int) -> int:
        """Remember where a row is, and which row of its group came before: four numbers, never the row itself."""
        self._files_of.append(file)
        self._offsets.append(line.offset)
        self._sizes.append(line.size)
        self._previous.append(previous)
        return len(self._offsets) - 1

    def read_rollouts(self) -> Iterator[tuple[TrainableRollout | None, ResultLine]]:
        """Read every row of the rollouts files, then the failures; yield each row, with its rollout if usable.

        Raise ResultsError if a rollout occurs twice in the rollouts files.
        """
        seen = KeySet()
        for number, path in enumerate(self.files[: self.n_rollouts_files]):
            for line in read_results(path):
                if not seen.add(line.key):
                    files = self.files[: self.n_rollouts_files]
                    require_distinct(other for file in files for other in read_results(file))
                yield self.look(line, number), line
        for number in range(self.n_rollouts_files, len(self.files)):
            for line in read_results(self.files[number]):
                # Every failed attempt has a line; a rollout that was retried successfully is also in the rollouts.
                if seen.add(line.key):
                    self.look(line, number)

    def survey(self) -> None:
        """Read everything once, and remember which rows are usable."""
        for rollout, line in self.read_rollouts():
            self._usable.setdefault(line.place.path, bytearray()).append(rollout is not None)

    def read_again(self) -> Iterator[tuple[TrainableRollout, ResultLine]]:
        """Yield the usable rows once more, with their rollouts and the facts of their groups."""
        for path in self.files[: self.n_rollouts_files]:
            # Rows added since then belong to no known group.
            for is_usable, line in zip(self._usable.get(str(path), b""), read_results(path), strict=False):
                if is_usable:
                    yield self.read_member(line.row), line

    def read_member(self, row: Row) -> TrainableRollout:
        """Return the rollout of a usable row with the facts of its group."""
        rollout = TrainableRollout.from_row_unjoined(row, is_checked=True)
        group = self.groups[rollout.group]
        rollout.group_size = group.size
        rollout.group_scored = group.scored
        rollout.group_failed = group.failed
        return rollout

    def read_rows(self, last: int, opened: Sequence[BinaryIO]) -> list[Row]:
        """Return the rows of a group up to its `last` one; `opened` are the survey's open files."""
        rows = []
        at = last
        while at >= 0:
            number = self._files_of[at]
            opened[number].seek(self._offsets[at])
            rows.append(loads_line(opened[number].read(self._sizes[at]), self.files[number], 0))
            at = self._previous[at]
        return rows[::-1]


def open_survey(
    files: Sequence[Path], *, needs_tokens: bool, pass_threshold: float = PASS_REWARD, keep_places: bool = False
) -> Survey:
    """Return a survey of rollouts files and of the failures files beside them; nothing is read yet.

    `keep_places` remembers where each row is, in order to read whole groups.
    """
    given = {file.resolve() for file in files}
    beside = dict.fromkeys(RunPaths.of(file).failures for file in files)
    failures = [path for path in beside if path.is_file() and path.resolve() not in given]
    return Survey([*files, *failures], len(files), needs_tokens, pass_threshold, keep_places)
