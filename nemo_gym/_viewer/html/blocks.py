# SPDX-License-Identifier: Apache-2.0
"""One block of a conversation as HTML: who speaks, and what, as plain text."""

from collections.abc import Iterator

from nemo_gym._results.metrics.describe import format_number
from nemo_gym._viewer.files.conversation_blocks import Block
from nemo_gym._viewer.html.elements import (
    Html,
    cut_text,
    element,
    fold,
    join,
    list_classes,
    render_json,
)

MOST_TEXT = 200_000
"""Nobody reads more characters than this on a page, and the page would become slow."""
_TEXT_SHOWN = 3000
_PEEK = 140


def render_block(block: Block, anchor: str | None = None, *, mark: int | None = None, opened: bool = False) -> Html:
    """Render a block: colored by speaker, with reasoning and the rest of long texts folded.

    `mark` is the character where it begins to differ from another; `opened` unfolds reasoning.
    """
    # An example turn looks like the model's own, but was given to it.
    is_example = not block.generated and block.kind in ("assistant", "reasoning", "tool_call", "tool_output")
    is_empty = not (block.text or block.images)
    classes = list_classes(f"ngv-block ngv-{block.kind}", empty=is_empty, given=is_example, crashed=block.error)
    heading = [element("span", block.title, class_="ngv-role", title=block.call_id)]
    if block.kind == "tool_output" and block.name:
        heading.append(element("span", block.name, class_="ngv-title"))
    if is_example:
        heading.append(element("span", "given, not generated", class_="ngv-badge"))
    if block.error:
        heading.append(element("span", block.error, class_="ngv-badge bad"))
    if block.step:
        step, reward = block.step
        heading.append(element("span", f"step {step}: reward {format_number(reward)}", class_="ngv-badge"))
    notes = []
    if block.status and block.status != "completed":
        notes.append(block.status)
    if block.n_tokens is not None:
        notes.append(f"{block.n_tokens:,} tokens")
    if notes:
        heading.append(element("span", " · ".join(notes), class_="ngv-note"))
    images = (element("img", src=image, alt="a picture in the row") for image in block.images)
    body = [*_render_block_text(block, mark), *images]
    if block.kind == "reasoning":
        peek = cut_text(" ".join(block.text[: 4 * _PEEK].split()), _PEEK)
        summary = element("summary", *heading, element("span", peek, class_="ngv-peek"))
        return element("details", summary, *body, class_=classes, id=anchor, open=opened)
    return element("section", element("header", *heading), *body, class_=classes, id=anchor)


def _render_block_text(block: Block, mark: int | None) -> Iterator[Html]:
    """Render the text, in two parts if it is long: the second is folded."""
    text = block.text[:MOST_TEXT]
    at = len(block.text)
    if len(text) > _TEXT_SHOWN + _TEXT_SHOWN // 3:
        # Prefer to cut at the end of a line near the limit.
        at = text.rfind("\n", _TEXT_SHOWN - _TEXT_SHOWN // 3, _TEXT_SHOWN) + 1 or _TEXT_SHOWN
    yield _render_part(block, text[:at], mark)
    if at < len(text):
        is_marked = mark is not None and mark >= at
        if mark is not None:
            mark = mark - at
        rest = _render_part(block, text[at:], mark)
        yield fold(f"Show {len(text) - at:,} more characters", rest, opened=is_marked, class_="ngv-more")
    if len(block.text) > MOST_TEXT:
        cut = f"{len(block.text) - MOST_TEXT:,} more characters are in the raw JSON."
        yield element("p", cut, class_="ngv-text ngv-soft")


def _render_part(block: Block, text: str, mark: int | None) -> Html:
    is_code = block.is_json or block.kind in ("tool_call", "tool_output")
    classes = list_classes("ngv-text", **{"ngv-code": is_code})
    if mark is not None and 0 <= mark <= len(text):
        rest = text[mark:]
        # If one text is the beginning of the other, mark the place itself.
        marked = element("mark", rest[:1] or "⌁", class_="ngv-here")
        return element("div", join([text[:mark], marked, rest[1:]]), class_=classes)
    return element("div", render_json(text) if block.is_json else text, class_=classes)
