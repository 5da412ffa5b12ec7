# SPDX-License-Identifier: Apache-2.0
"""A program's work as HTML: what it changed, its side calls, how it ended, what it kept.

All of it is text that a program or a model wrote, and may be long: each part has limited room on a page.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from nemo_gym._viewer.files.program_work import ChangedFile, ProgramBranch, ProgramEnding, ProgramWork
from nemo_gym._viewer.files.reward_explanation import shorten
from nemo_gym._viewer.html.blocks import MOST_TEXT, render_block
from nemo_gym._viewer.html.elements import Html, element, fold, join, note_more, soft
from nemo_gym._viewer.html.token_panel import render_tokens

_LINE_COST = 40
"""A line costs a page as much as this many characters."""
_LINES_OPEN = 200
"""A diff of up to this many lines is shown unfolded."""
_MOST_SAID = 5 * MOST_TEXT
_CALLS_NAMED = 6
_PEEK = 90


def render_changes(changes: Sequence[ChangedFile]) -> Html:
    """Render a diff, with a fold for each file."""
    heading = element("h2", "What the program changed")
    if not changes:
        return join([heading, soft("No file of the workspace.")])
    room = MOST_TEXT
    opened = sum(len(file.lines) for file in changes) <= _LINES_OPEN
    folds: list[Html] = []
    for file in changes:
        if room < 0:
            folds.append(soft(f"{len(changes) - len(folds):,} more files are in the raw JSON."))
            break
        kept = 0
        for _, line in file.lines:
            room -= len(line) + _LINE_COST
            if room < 0:
                break
            kept += 1
        folds.append(_render_changed_file(file, kept, opened))
    return join([heading, element("div", *folds, class_="ngv-folds")])


def render_branches(branches: Sequence[ProgramBranch]) -> Html:
    """Render the calls beside the main line, each chain of them as a conversation in a fold."""
    folds = []
    room = _MOST_SAID
    for branch in branches:
        room -= sum(len(block.text) for block in branch.blocks[branch.n_shared :])
        content: Iterable[Html | None] = [soft("What was said is in the raw JSON.")]
        if room >= 0:
            content = _render_branch(branch)
        folds.append(fold(_title_branch(branch), *content))
    note = soft(
        "Calls that the answer does not build on: titles, sub-agents, what came before a summary, and the like."
    )
    return join(
        [element("h2", f"Beside the main line ({len(folds)})"), note, element("div", *folds, class_="ngv-folds")]
    )


def render_program(work: ProgramWork, *, has_failed: bool) -> Html | None:
    """Render how the program ended and the files that were kept; for a failed one, unfold what it printed to stderr."""
    parts = [element("h2", "The program")]
    folds = []
    if work.ending is not None:
        parts.append(_render_ending(work.ending))
        for name, text in work.ending.printed:
            shown = element("pre", text[-MOST_TEXT:])
            folds.append(fold(f"The end of {name}", shown, opened=has_failed and name == "stderr"))
    if work.artifacts:
        folds.append(fold(f"Artifacts ({len(work.artifacts)})", *_render_artifacts(work.artifacts)))
    if folds:
        parts.append(element("div", *folds, class_="ngv-folds"))
    return join(parts) if len(parts) > 1 else None


def _render_changed_file(file: ChangedFile, kept: int, opened: bool) -> Html:
    spans = [
        element("span", "".join(f"{line}\n" for _, line in lines), class_=f"ngv-{kind}")
        for kind, lines in groupby(file.lines[:kept], key=lambda one: one[0])
    ]
    counts = [
        element("span", f"{sign}{n:,}", class_=f"ngv-badge {mood}")
        for sign, n, mood in (("+", file.count("added"), "good"), ("−", file.count("removed"), "bad"))
        if n
    ]
    title = join([element("span", file.name, class_="ngv-path"), *counts])
    note = note_more(len(file.lines) - kept, "lines are in the raw JSON.")
    return fold(title, element("pre", *spans, class_="ngv-patch"), note, opened=opened)


def _title_branch(branch: ProgramBranch) -> Html:
    calls = branch.calls
    if len(calls) > _CALLS_NAMED:
        label = f"{len(calls):,} calls, {calls[0]} to {calls[-1]}"
    elif len(calls) > 1:
        label = f"Calls {', '.join(map(str, calls))}"
    else:
        label = f"Call {', '.join(map(str, calls)) or 'without a number'}"
    after = "starts fresh"
    if branch.begins_after is not None:
        after = f"continues call {branch.begins_after}"
    own = branch.blocks[branch.n_shared :]
    title = [label, element("span", after, class_="ngv-badge")]
    if asked := next((block.text for block in reversed(own) if block.kind == "user" and not block.generated), ""):
        title.append(element("span", shorten(asked, _PEEK), class_="ngv-soft"))
    return join(title)


def _render_branch(branch: ProgramBranch) -> Iterator[Html]:
    if branch.n_shared == 1:
        yield soft("Its first item is that of the main line.")
    elif branch.n_shared:
        yield soft(f"Its first {branch.n_shared:,} items are those of the main line.")
    own = branch.blocks[branch.n_shared :]
    for heading, name, generated in (("Prompt", "ngv-given", False), ("What the model did", "ngv-made", True)):
        blocks = [render_block(block) for block in own if block.generated is generated]
        if blocks:
            yield element("div", element("h3", heading), *blocks, class_=name)
    if branch.tokens is not None:
        yield fold(f"Tokens ({len(branch.tokens.tokens):,})", element("div", render_tokens(branch.tokens)))


def _render_ending(ending: ProgramEnding) -> Html:
    facts = {"exit code": "none: it was ended"}
    if ending.exit_code is not None:
        facts["exit code"] = str(ending.exit_code)
    if ending.seconds is not None:
        facts["time"] = f"{ending.seconds:.1f} s"
    if ending.n_calls is not None:
        facts["model calls"] = f"{ending.n_calls:,}"
    shown = [element("span", f"{name} ", element("b", value)) for name, value in facts.items()]
    return element("div", *shown, class_="ngv-facts")


def _render_artifacts(artifacts: Mapping[str, str]) -> Iterator[Html]:
    room = _MOST_SAID
    for name, text in artifacts.items():
        shown = text[: min(room, MOST_TEXT)]
        room -= len(shown)
        note = note_more(len(text) - len(shown), "characters are in the raw JSON.")
        title = join([element("span", name, class_="ngv-path"), element("span", f"{len(text):,}", class_="ngv-badge")])
        yield fold(title, element("pre", shown) if shown else None, note)
