# SPDX-License-Identifier: Apache-2.0
"""The bricks of every page: elements, tables, JSON in colour. Text goes in raw and comes out escaped.

Attributes and text are escaped here; what is marked as HTML by `Html` is inserted as it is. Nothing else builds tags.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset({"img", "br", "meta", "link"})
_JSON_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>true|false|null)'
)
# Beyond this, colours would make a page slow and help nobody.
_MOST_COLOURED = 20_000


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *content: str | None, **attributes: str | bool | None) -> Html:
    """An element; `class_` is the attribute `class`, `data_x` is `data-x`, False and None leave an attribute out."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{joined(content)}</{name}>")


def joined(content: Iterable[str | None]) -> Html:
    """Pieces in a row, those that are plain text escaped."""
    return Html("".join(one if isinstance(one, Html) else text(one) for one in content if one is not None))


def text(value: str) -> Html:
    """Plain text as HTML. Characters that have no place in a page are replaced."""
    clean = value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return Html(escape(clean, quote=True))


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> Html:
    """A table that scrolls sideways where it is too wide; `numbers`: the columns that are set to the right."""
    right = frozenset(numbers)
    head = element("tr", *(_cell("th", name, place in right) for place, name in enumerate(heading)))
    body = (element("tr", *(_cell("td", cell, place in right) for place, cell in enumerate(row))) for row in rows)
    made = element("table", element("thead", head), element("tbody", *body))
    return element("div", made, class_="ngv-table", tabindex="0")


def folded(summary: str, *content: str | None, opened: bool = False, class_: str = "ngv-fold") -> Html:
    """Content behind a line that one can click."""
    return element("details", element("summary", summary), *content, class_=class_, open=opened)


def json_text(content: str) -> Html:
    """Indented JSON, in colour unless it is long."""
    if len(content) > _MOST_COLOURED:
        return text(content)
    pieces: list[str] = []
    at = 0
    for match in _JSON_TOKEN.finditer(content):
        pieces.append(content[at : match.start()])
        pieces.append(_coloured(match))
        at = match.end()
    return joined([*pieces, content[at:]])


def _coloured(match: re.Match[str]) -> Html:
    if match["text"]:
        kind = "ngv-key" if match["colon"] else "ngv-string"
        return joined([element("span", match["text"], class_=kind), match["colon"]])
    return element("span", match[0], class_="ngv-number" if match["number"] else "ngv-word")


def _cell(name: str, content: str, right: bool) -> Html:
    return element(name, content, class_="ngv-right" if right else None)


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(value)}"'
