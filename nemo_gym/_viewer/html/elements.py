# SPDX-License-Identifier: Apache-2.0
"""Building blocks of every page: elements, tables, colored JSON, small charts as inline SVG, style sheet, script.

Text goes in raw and comes out escaped; what is marked as HTML by `Html` is inserted unchanged. Nothing else builds
tags. A standalone page (class `ngv-page`) follows the reader's system between light and dark; inside another page, the
class `dark` of an enclosing element decides.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from nemo_gym._results.metrics.describe import format_number

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
SCRIPT = (Path(__file__).parent / "script.js").read_text(encoding="utf-8")
_VOID = frozenset({"img", "input", "br", "meta", "link"})
_JSON_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>true|false|null)'
)
# Beyond this, colors would only make a page slow.
_MOST_COLORED = 20_000

_WIDTH = 420
_HEIGHT = 210
_LEFT = 46
_RIGHT = 8
_TOP = 16
_BOTTOM = 34
_INNER_WIDTH = _WIDTH - _LEFT - _RIGHT
_INNER_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_LABEL_PIXELS = 6.2
_BAR_GAP = 0.22
_ROW_HEIGHT = 28
_MOST_CHARACTERS = 64
_FLAT = 3
"""The height of the lowest bar: a bar of no height would look like a missing one."""


class Html(str):
    """Text that already is HTML."""

    __slots__ = ()


def element(name: str, /, *content: str | None, **attributes: str | bool | None) -> Html:
    """Make an element; `class_` is the attribute `class`, `data_x` is `data-x`, False and None omit an attribute."""
    said = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        said += f" {key.rstrip('_').replace('_', '-')}"
        if value is not True:
            said += f'="{escape_text(value)}"'
    if name in _VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{join(content)}</{name}>")


def list_classes(always: str, **others: object) -> str:
    """Return a `class` attribute: `always`, and the names of the others that are true."""
    return " ".join([always, *(name for name, is_set in others.items() if is_set)])


def join(content: Iterable[str | None]) -> Html:
    """Concatenate pieces, escaping those that are plain text."""
    return Html("".join([one if isinstance(one, Html) else escape_text(one) for one in content if one is not None]))


def escape_text(value: str) -> str:
    """Escape plain text for a page, replacing characters that a page cannot hold."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return escape(value.replace("\0", "\N{REPLACEMENT CHARACTER}"))


def soft(content: str | Html) -> Html:
    """Make a paragraph in a muted color."""
    return element("p", content, class_="ngv-soft")


def note_more(n: int, text: str) -> Html | None:
    """Say that there are `n` more; None if there are none."""
    if n <= 0:
        return None
    return soft(f"{n:,} more {text}")


def format_count(number: int, noun: str) -> str:
    """Say how many there are: `1 task`, `2 tasks`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def cut_text(text: str, length: int) -> str:
    """Return a text with an ellipsis in place of all beyond `length` characters."""
    if len(text) <= length:
        return text
    return f"{text[:length]}…"


def tile(value: str, label: str, *, bad: bool = False, wide: bool = False) -> Html:
    """Make a number with its label, for a grid of them."""
    classes = list_classes("ngv-tile", bad=bad, **{"ngv-double": wide})
    return element("div", element("b", value), element("span", label), class_=classes)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> Html:
    """Make a table that scrolls sideways if it is too wide; `numbers` are the columns to align right."""
    right = frozenset(numbers)

    def line(name: str, cells: Sequence[str]) -> Html:
        classes = dict.fromkeys(right, "ngv-right")
        return element("tr", *(element(name, cell, class_=classes.get(at)) for at, cell in enumerate(cells)))

    body = element("tbody", *(line("td", row) for row in rows))
    return element(
        "div", element("table", element("thead", line("th", heading)), body), class_="ngv-table", tabindex="0"
    )


def fold(summary: str, *content: str | None, opened: bool = False, class_: str = "ngv-fold") -> Html:
    """Hide content behind a summary line that opens on a click."""
    return element("details", element("summary", summary), *content, class_=class_, open=opened)


def render_json(content: str) -> Html:
    """Render indented JSON, in color unless it is long."""
    if len(content) > _MOST_COLORED:
        return Html(escape_text(content))
    pieces: list[str | None] = []
    at = 0
    for match in _JSON_TOKEN.finditer(content):
        pieces.append(content[at : match.start()])
        if match["colon"]:
            pieces += [element("span", match["text"], class_="ngv-key"), match["colon"]]
        elif match["text"]:
            pieces.append(element("span", match["text"], class_="ngv-string"))
        elif match["number"]:
            pieces.append(element("span", match[0], class_="ngv-number"))
        else:
            pieces.append(element("span", match[0], class_="ngv-word"))
        at = match.end()
    return join([*pieces, content[at:]])


# --- charts -----------------------------------------------------------------------------------------------------------


def draw_bar_chart(
    title: str, labels: Sequence[str], values: Sequence[float], *, bad: bool = False, at_least: float = 0
) -> Html:
    """Draw one bar per label, a flat one for a value of 0; `bad` uses the warning color.

    The axis always reaches up to `at_least`. If there is room, the value stands above its bar.
    """
    low = min(0, *values)
    high = max(at_least, *values, 0)
    if high == low:
        high = low + 1
    slot = _INNER_WIDTH / max(len(values), 1)
    every = max(1, -(-int(max(map(len, labels), default=1) * _LABEL_PIXELS + 8) // max(int(slot), 1)))
    has_room = max((len(format_number(value)) for value in values), default=0) * _LABEL_PIXELS < slot
    width = min(slot * (1 - _BAR_GAP), 64)
    shapes = _draw_axes(low, high)
    for number, (label, value) in enumerate(zip(labels, values, strict=True)):
        left = _LEFT + slot * number + (slot - width) / 2
        top, foot = (_scale(edge, low, high) for edge in (max(value, 0), min(value, 0)))
        top = min(top, foot - _FLAT)
        shapes.append(_draw_bar(left, top, width, foot - top, label, value, bad))
        if has_room:
            shapes.append(_draw_label(left + width / 2, top - 3, format_number(value), "middle"))
        if number % every == 0:
            shapes.append(_draw_label(left + width / 2, _HEIGHT - 16, label, "middle"))
    return _frame_chart(title, shapes)


def draw_row_chart(title: str, counts: Mapping[str, float], *, bad: bool = False) -> Html:
    """Draw one horizontal bar per name, with the name above it: for names that are too long to stand side by side."""
    top = max(counts.values(), default=0) or 1
    shapes: list[Html] = []
    for number, (name, value) in enumerate(counts.items(), 1):
        foot = _ROW_HEIGHT * number
        text = cut_text(name, _MOST_CHARACTERS)
        width = max(_FLAT, (_WIDTH - _LEFT) * value / top)
        shapes.append(_draw_label(0, foot - 14, text, "start"))
        shapes.append(_draw_bar(0, foot - 9, width, 8, name, value, bad))
        shapes.append(_draw_label(width + 5, foot - 1, format_number(value), "start"))
    return _frame_chart(title, shapes, _ROW_HEIGHT * len(counts) + 4)


def draw_point_chart(title: str, x_title: str, xs: Sequence[float], ys: Sequence[float]) -> Html:
    """Draw a dot per pair of values."""
    right = max(xs, default=0) or 1
    low = min(ys, default=0)
    high = max(ys, default=1)
    if high == low:
        low = low - 0.5
        high = high + 0.5
    shapes = _draw_axes(low, high)
    for x, y in zip(xs, ys, strict=True):
        across = _LEFT + _INNER_WIDTH * x / right
        up = _scale(y, low, high)
        shapes.append(element("circle", cx=f"{across:.1f}", cy=f"{up:.1f}", r="3", class_="dot"))
    shapes.append(_draw_label(_LEFT, _HEIGHT - 16, "0", "middle"))
    shapes.append(_draw_label(_WIDTH - _RIGHT, _HEIGHT - 16, format_number(right), "end"))
    shapes.append(_draw_label(_LEFT + _INNER_WIDTH / 2, _HEIGHT - 3, x_title, "middle"))
    return _frame_chart(title, shapes)


def _scale(value: float, low: float, high: float) -> float:
    return _TOP + _INNER_HEIGHT * (1 - (value - low) / (high - low))


def _draw_axes(low: float, high: float) -> list[Html]:
    lines = []
    for share in (0.0, 0.5, 1.0):
        level = _TOP + _INNER_HEIGHT - _INNER_HEIGHT * share
        ends = {"x1": str(_LEFT), "x2": str(_WIDTH - _RIGHT), "y1": f"{level:.1f}", "y2": f"{level:.1f}"}
        lines.append(element("line", class_="axis", **ends))
        lines.append(_draw_label(_LEFT - 6, level + 4, format_number(low + (high - low) * share), "end"))
    return lines


def _draw_bar(left: float, top: float, width: float, height: float, label: str, value: float, bad: bool) -> Html:
    place = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    classes = list_classes("bar", bad=bad, zero=value == 0)
    title = element("title", f"{label}: {format_number(value)}")
    return element("rect", title, class_=classes, rx="1" if value == 0 else "2", **place)


def _draw_label(x: float, y: float, text: str, anchor: str) -> Html:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _frame_chart(title: str, shapes: Sequence[Html], height: int = _HEIGHT) -> Html:
    drawn = element("svg", *shapes, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)
    return element("figure", element("figcaption", title), drawn, class_="ngv-chart")
