# SPDX-License-Identifier: Apache-2.0
"""What a program that ran a rollout left behind: how it ended, its side calls, changes, files.

A field with one of these names but another shape belongs to its environment, and is left to others to show.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any, Literal

from nemo_gym._util.json_shapes import as_int, as_list, as_mapping, as_number
from nemo_gym._viewer.files.conversation_blocks import Block, list_input_items, read_blocks
from nemo_gym._viewer.files.rollout_tokens import TokenSequence, read_tokens

_PROGRAM = "program"
_BRANCHES = "branches"
_ARTIFACTS = "artifacts"
_DIFF = "workspace_diff"
_CALLS = "model_calls"
_HUNK = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")
_BINARY = re.compile(r"Binary or long file (.*) differs")
_NO_FILE = "/dev/null"

LineKind = Literal["added", "removed", "place", "plain"]


@dataclass(frozen=True)
class ProgramBranch:
    """A chain of model calls beside the main line, each continuing the one before."""

    calls: list[int]
    """Their numbers among all calls of the rollout, from 1."""
    begins_after: int | None
    """The number of the call that the first one continues; None if it started fresh."""
    blocks: list[Block]
    n_shared: int
    """How many of the first blocks are also in the main line."""
    tokens: TokenSequence | None


@dataclass
class ChangedFile:
    """A file in a diff."""

    name: str
    lines: list[tuple[LineKind, str]] = field(default_factory=list)

    def count(self, kind: LineKind) -> int:
        """Return how many lines are of a kind."""
        return sum(one == kind for one, _ in self.lines)


@dataclass(frozen=True)
class ProgramEnding:
    """How a program ended."""

    exit_code: int | None
    """None if we ended it."""
    seconds: float | None
    n_calls: int | None
    """How many calls the model answered."""
    printed: list[tuple[str, str]]
    """The ends of stdout and stderr, if any."""


@dataclass
class ProgramWork:
    """What a row holds of a program's work."""

    fields: frozenset[str]
    """The fields of the row that this was read from."""
    ending: ProgramEnding | None = None
    branches: list[ProgramBranch] = field(default_factory=list)
    artifacts: dict[str, str] = field(default_factory=dict)
    """Files that were kept, by path."""
    changes: list[ChangedFile] | None = None
    """None if the row says nothing about changes."""


def read_program_work(row: Mapping[str, Any], main_line: Sequence[Block]) -> ProgramWork | None:
    """Return what a program left behind; None for a row without one. `main_line` is the row's conversation."""
    program, branches, artifacts, diff = (row.get(name) for name in (_PROGRAM, _BRANCHES, _ARTIFACTS, _DIFF))
    fits = {
        _PROGRAM: isinstance(program, dict) and "exit_code" in program,
        _BRANCHES: isinstance(branches, list)
        and all(isinstance(one, dict) and isinstance(one.get("output"), list) for one in branches),
        _ARTIFACTS: isinstance(artifacts, dict) and all(isinstance(text, str) for text in artifacts.values()),
        _DIFF: isinstance(diff, str),
    }
    fields = {name for name, is_ours in fits.items() if is_ours}
    if not any(row[name] for name in fields):
        return None
    work = ProgramWork(frozenset(fields | {_CALLS}))
    if _PROGRAM in fields:
        work.ending = _read_ending(as_mapping(program), row)
    if _BRANCHES in fields:
        work.branches = [_read_branch(one, main_line) for one in as_list(branches)]
    if _ARTIFACTS in fields:
        work.artifacts = dict(as_mapping(artifacts))
    if _DIFF in fields:
        work.changes = read_diff(str(diff))
    return work


def read_diff(diff: str) -> list[ChangedFile]:
    """Return the files of a unified diff with all their lines, whatever they look like.

    Inside a hunk, its line counts decide what a line is: a removed line may look like a file name.
    """
    files: list[ChangedFile] = []
    if not diff:
        return []
    lines = diff.removesuffix("\n").split("\n")
    old = new = 0
    for line, following in pairwise([*lines, ""]):
        kind: LineKind = "plain"
        if old > 0 or new > 0:
            kind = {"+": "added", "-": "removed"}.get(line[:1], "plain")  # type: ignore[assignment]
            if not line.startswith("\\"):
                old = old - (kind != "added")
                new = new - (kind != "removed")
        elif hunk := _HUNK.match(line):
            kind = "place"
            old = int(hunk[1] or 1)
            new = int(hunk[2] or 1)
        elif line.startswith("--- ") and following.startswith("+++ "):
            name = following[4:].removeprefix("b/")
            if name == _NO_FILE:
                name = line[4:].removeprefix("a/")
            files.append(ChangedFile(name))
            kind = "place"
        elif line.startswith("+++ "):
            kind = "place"
        elif binary := _BINARY.fullmatch(line):
            files.append(ChangedFile(binary[1]))
        if not files:
            files.append(ChangedFile("changes"))
        files[-1].lines.append((kind, line))
    return files


def _read_ending(program: Mapping[str, Any], row: Mapping[str, Any]) -> ProgramEnding:
    printed = [(name, program.get(name)) for name in ("stdout", "stderr")]
    return ProgramEnding(
        exit_code=as_int(program.get("exit_code")),
        seconds=as_number(program.get("seconds")),
        n_calls=as_int(row.get(_CALLS)),
        printed=[(name, text) for name, text in printed if isinstance(text, str) and text.strip()],
    )


def _read_branch(branch: Mapping[str, Any], main_line: Sequence[Block]) -> ProgramBranch:
    given = list_input_items(as_mapping(branch.get("responses_create_params")))
    output = as_list(branch.get("output"))
    blocks = read_blocks(given, output)
    begins_after = as_int(branch.get("begins_after_call"))
    if begins_after is not None:
        begins_after += 1
    # A model's reasoning may be missing from its history.
    said = (block for block in main_line if block.kind != "reasoning")
    shared = takewhile(lambda block: block.kind == "reasoning" or _is_same(block, next(said, None)), blocks)
    return ProgramBranch(
        calls=[number + 1 for number in as_list(branch.get("calls")) if type(number) is int],
        begins_after=begins_after,
        blocks=blocks,
        n_shared=sum(not block.generated for block in shared),
        tokens=read_tokens(output),
    )


def _is_same(block: Block, other: Block | None) -> bool:
    return other is not None and (block.kind, block.text) == (other.kind, other.text)
