# SPDX-License-Identifier: Apache-2.0
"""Small charts as inline SVG: bars, and points in the plane. Colours come from the style sheet of the page."""

from collections.abc import Mapping, Sequence

from nemo_gym._reports.html_parts import Html, element
from nemo_gym._results.metric_rows import number_text as shown

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
