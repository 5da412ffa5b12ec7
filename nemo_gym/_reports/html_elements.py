# SPDX-License-Identifier: Apache-2.0
"""How pages look, and the little that they do: one style sheet and one script, both without any tags round them.

A page of its own (class `ngv-page`) follows the reader's system between light and dark; inside another page, the class
`dark` of an element round it decides.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from nemo_gym._results.metric_rows import number_text as shown

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
SCRIPT = (Path(__file__).parent / "script.js").read_text(encoding="utf-8")


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


_WIDTH, _HEIGHT = 420, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 16, 34
_INNER_WIDTH, _INNER_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_LABEL_PIXELS = 6.2
_BAR_GAP = 0.22
_ROW_HEIGHT, _MOST_CHARACTERS = 28, 64
_FLAT = 3
"""How high the lowest bar is: one that cannot be seen looks like one that is not there."""


def bar_chart(
    title: str, labels: Sequence[str], values: Sequence[float], *, bad: bool = False, at_least: float = 0
) -> Html:
    """One bar per label, a value of 0 as a flat one; `bad` paints them as something to worry about.

    `at_least` is how high the axis goes anyway. Where there is room, the value stands above its bar.
    """
    low, high = min(0, *values), max(at_least, *values, 0)
    high = high if high > low else low + 1
    slot = _INNER_WIDTH / max(len(values), 1)
    every = max(1, -(-int(max(map(len, labels), default=1) * _LABEL_PIXELS + 8) // max(int(slot), 1)))
    has_room = max((len(shown(value)) for value in values), default=0) * _LABEL_PIXELS < slot
    shapes: list[Html] = [*_frame(low, high)]
    for place, (label, value) in enumerate(zip(labels, values, strict=True)):
        width = min(slot * (1 - _BAR_GAP), 64)
        left = _LEFT + slot * place + (slot - width) / 2
        top, foot = (_level(edge, low, high) for edge in (max(value, 0), min(value, 0)))
        top = min(top, foot - _FLAT)
        shapes.append(_bar(left, top, width, foot - top, f"{label}: {shown(value)}", bad, is_zero=value == 0))
        if has_room:
            shapes.append(_label(left + width / 2, top - 3, shown(value), "middle"))
        if place % every == 0:
            shapes.append(_label(left + width / 2, _HEIGHT - 16, label, "middle"))
    return _figure(title, shapes)


def _level(value: float, low: float, high: float) -> float:
    return _TOP + _INNER_HEIGHT * (1 - (value - low) / (high - low))


def row_chart(title: str, counts: Mapping[str, float], *, bad: bool = False) -> Html:
    """One bar per name, across, with the name above it: for names that are too long to stand side by side."""
    top = max(counts.values(), default=0) or 1
    shapes: list[Html] = []
    for place, (name, value) in enumerate(counts.items()):
        foot = _ROW_HEIGHT * (place + 1)
        text = name if len(name) <= _MOST_CHARACTERS else f"{name[: _MOST_CHARACTERS - 1]}…"
        width = max(_FLAT, (_WIDTH - _LEFT) * value / top)
        shapes.append(_label(0, foot - 14, text, "start"))
        shapes.append(_bar(0, foot - 9, width, 8, f"{name}: {shown(value)}", bad, is_zero=value == 0))
        shapes.append(_label(width + 5, foot - 1, shown(value), "start"))
    return _figure(title, shapes, _ROW_HEIGHT * len(counts) + 4)


def point_chart(title: str, x_title: str, xs: Sequence[float], ys: Sequence[float]) -> Html:
    """A dot per pair of values."""
    right, low, high = max(xs, default=0) or 1, min(ys, default=0), max(ys, default=1)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    shapes: list[Html] = [*_frame(low, high)]
    for x, y in zip(xs, ys, strict=True):
        across, up = _LEFT + _INNER_WIDTH * x / right, _level(y, low, high)
        shapes.append(element("circle", cx=f"{across:.1f}", cy=f"{up:.1f}", r="3", class_="dot"))
    shapes.append(_label(_LEFT, _HEIGHT - 16, "0", "middle"))
    shapes.append(_label(_WIDTH - _RIGHT, _HEIGHT - 16, shown(right), "end"))
    shapes.append(_label(_LEFT + _INNER_WIDTH / 2, _HEIGHT - 3, x_title, "middle"))
    return _figure(title, shapes)


def _frame(low: float, high: float) -> list[Html]:
    bottom = _TOP + _INNER_HEIGHT
    lines = []
    for share in (0.0, 0.5, 1.0):
        level = bottom - _INNER_HEIGHT * share
        ends = {"x1": str(_LEFT), "x2": str(_WIDTH - _RIGHT), "y1": f"{level:.1f}", "y2": f"{level:.1f}"}
        lines.append(element("line", class_="axis", **ends))
        lines.append(_label(_LEFT - 6, level + 4, shown(low + (high - low) * share), "end"))
    return lines


def _bar(left: float, top: float, width: float, height: float, said: str, bad: bool, *, is_zero: bool) -> Html:
    place = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    kind = f"bar{' bad' if bad else ''}{' zero' if is_zero else ''}"
    return element("rect", element("title", said), class_=kind, rx="1" if is_zero else "2", **place)


def _label(x: float, y: float, text: str, anchor: str) -> Html:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _figure(title: str, shapes: Sequence[Html], height: int = _HEIGHT) -> Html:
    drawn = element("svg", *shapes, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)
    return element("figure", element("figcaption", title), drawn, class_="ngv-chart")
