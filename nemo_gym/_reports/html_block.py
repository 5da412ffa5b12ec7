# SPDX-License-Identifier: Apache-2.0
"""One block of a conversation as HTML: coloured by who speaks, thoughts and the rest of long texts folded away."""

from nemo_gym._reports.blocks import Block
from nemo_gym._reports.html_parts import Html, element, folded, joined, json_text

_SHOWN = 3000
# Beyond this nobody reads on a page, and the page would become slow.
_MOST = 200_000
_PEEK = 140


def block_html(block: Block, anchor: str | None = None, *, mark: int | None = None, opened: bool = False) -> Html:
    """A block; `mark` is the character where it begins to differ from another, `opened` unfolds a thought."""
    classes = f"ngv-block ngv-{block.kind}" + ("" if block.text or block.images else " empty")
    # A turn of an example looks like the model's own, but was put into its mouth.
    is_example = not block.generated and block.kind in ("assistant", "reasoning", "tool_call", "tool_output")
    heading = [element("span", block.title, class_="ngv-role", title=block.call_id)]
    if block.kind == "tool_output" and block.name:
        heading.append(element("span", block.name, class_="ngv-title"))
    if is_example:
        heading.append(element("span", "given, not generated", class_="ngv-badge"))
    if block.error:
        heading.append(element("span", block.error, class_="ngv-badge bad"))
    if note := _note(block):
        heading.append(element("span", note, class_="ngv-note"))
    classes += (" given" if is_example else "") + (" crashed" if block.error else "")
    body = [*_text(block, mark), *(element("img", src=image, alt="a picture in the row") for image in block.images)]
    if block.kind == "reasoning":
        heading.append(element("span", _peek(block.text), class_="ngv-peek"))
        return element("details", element("summary", *heading), *body, class_=classes, id=anchor, open=opened)
    return element("section", element("header", *heading), *body, class_=classes, id=anchor)


def _note(block: Block) -> str:
    status = "" if block.status == "completed" else block.status or ""
    return " · ".join(filter(None, [status, f"{block.n_tokens:,} tokens" if block.n_tokens is not None else ""]))


def _peek(text: str) -> str:
    line = " ".join(text[: 4 * _PEEK].split())
    return line if len(line) <= _PEEK else f"{line[: _PEEK - 1]}…"


def _text(block: Block, mark: int | None) -> list[Html]:
    """The text, in two parts where it is long: the second is folded."""
    text, cut = block.text[:_MOST], len(block.text) - _MOST
    at = len(text) if len(text) <= _SHOWN + _SHOWN // 3 else _break(text)
    parts = [_part(block, text[:at], mark)]
    if at < len(text):
        later = mark is not None and mark >= at
        rest = _part(block, text[at:], mark - at if later and mark is not None else None)
        label = f"Show {len(text) - at:,} more characters"
        parts.append(folded(label, rest, opened=later, class_="ngv-more"))
    if cut > 0:
        parts.append(element("p", f"{cut:,} more characters are in the raw JSON.", class_="ngv-text ngv-soft"))
    return parts


def _break(text: str) -> int:
    """A good place to cut: the end of a line near the limit, if there is one."""
    return max(text.rfind("\n", _SHOWN - _SHOWN // 3, _SHOWN) + 1, 0) or _SHOWN


def _part(block: Block, text: str, mark: int | None) -> Html:
    classes = "ngv-text ngv-code" if block.is_json or block.kind in ("tool_call", "tool_output") else "ngv-text"
    if mark is not None and 0 <= mark <= len(text):
        rest = text[mark:]
        # Where one text is the beginning of the other, the place is marked by itself.
        marked = element("mark", rest[:1] if rest else "⌁", class_="ngv-here")
        return element("div", joined([text[:mark], marked, rest[1:]]), class_=classes)
    return element("div", json_text(text) if block.is_json else text, class_=classes)
