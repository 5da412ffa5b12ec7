# SPDX-License-Identifier: Apache-2.0
"""Small charts as inline SVG: bars, and points in the plane. Colours come from the style sheet of the page."""

from collections.abc import Sequence

from nemo_gym._reports.html_parts import Html, element
from nemo_gym._results.metric_rows import number_text as shown

_WIDTH, _HEIGHT = 420, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 12, 34
_INNER_WIDTH, _INNER_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_LABEL_PIXELS = 6.2
_BAR_GAP = 0.22


def bar_chart(
    title: str, labels: Sequence[str], values: Sequence[float], *, bad: bool = False, at_least: float = 0
) -> Html:
    """One bar per label; `bad` paints them as something to worry about, `at_least` is how high the axis goes anyway."""
    top = max(at_least, *values, 0) or 1
    slot = _INNER_WIDTH / max(len(values), 1)
    every = max(1, -(-int(max(map(len, labels), default=1) * _LABEL_PIXELS + 8) // max(int(slot), 1)))
    shapes: list[Html] = [*_frame(0, top)]
    for place, (label, value) in enumerate(zip(labels, values, strict=True)):
        height = _INNER_HEIGHT * value / top
        left, width = _LEFT + slot * (place + _BAR_GAP / 2), min(slot * (1 - _BAR_GAP), 64)
        left += (slot * (1 - _BAR_GAP) - width) / 2
        shapes.append(_bar(left, _TOP + _INNER_HEIGHT - height, width, height, f"{label}: {shown(value)}", bad))
        if place % every == 0:
            shapes.append(_label(left + width / 2, _HEIGHT - 16, label, "middle"))
    return _figure(title, shapes)


def point_chart(title: str, x_title: str, xs: Sequence[float], ys: Sequence[float]) -> Html:
    """A dot per pair of values."""
    right, low, high = max(xs, default=0) or 1, min(ys, default=0), max(ys, default=1)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    shapes: list[Html] = [*_frame(low, high)]
    for x, y in zip(xs, ys, strict=True):
        across, up = _LEFT + _INNER_WIDTH * x / right, _TOP + _INNER_HEIGHT * (1 - (y - low) / (high - low))
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


def _bar(left: float, top: float, width: float, height: float, said: str, bad: bool) -> Html:
    place = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}", "height": f"{max(height, 0):.1f}"}
    return element("rect", element("title", said), class_="bar bad" if bad else "bar", rx="2", **place)


def _label(x: float, y: float, text: str, anchor: str) -> Html:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _figure(title: str, shapes: Sequence[Html]) -> Html:
    drawn = element("svg", *shapes, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)
    return element("figure", element("figcaption", title), drawn, class_="ngv-chart")
