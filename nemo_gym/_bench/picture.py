# SPDX-License-Identifier: Apache-2.0
"""Growth curves as one SVG: a small chart for every `Point.chart`, a line for every `Point.line`.

Both axes are logarithmic where the figures span more than a factor of twenty. Written by hand, because a picture of a
few lines is no reason for a plotting library.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from nemo_gym._bench.report import Row, write_number

_WIDTH = 460
_HEIGHT = 300
_COLUMNS = 2
_LEFT = 62
_RIGHT = 20
_TOP = 44
_BOTTOM = 46
_COLOURS = ("#1f6feb", "#d1542c", "#2a8a4a", "#8250c4", "#946800")
_WIDE_SPAN = 20.0
_LETTER_PX = 6.0
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:13px}"
    ".small{font-size:11px;fill:#57606a}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}"
)


def draw_picture(rows: Iterable[Row], caption: str) -> str | None:
    """Draw the curves of all rows that lie on one; None if there are none."""
    charts: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row.point is not None:
            charts.setdefault(row.point.chart, {}).setdefault(row.point.line, []).append(row)
    if not charts:
        return None
    columns = min(_COLUMNS, len(charts))
    width = columns * _WIDTH
    height = ceil(len(charts) / columns) * _HEIGHT + 34
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (title, lines) in enumerate(charts.items()):
        x = number % columns * _WIDTH
        y = number // columns * _HEIGHT
        drawn += [f'<g transform="translate({x},{y})">', *_draw_chart(title, lines), "</g>"]
    drawn += [f'<text class="small" x="12" y="{height - 12}">{escape(caption)}</text>', "</svg>"]
    return "\n".join(drawn) + "\n"


@dataclass(frozen=True)
class _Axis:
    """From figures to pixels."""

    low: float
    high: float
    start_px: float
    end_px: float
    is_log: bool

    def place(self, value: float) -> float:
        low, high, at = (log10(v) if self.is_log else v for v in (self.low, self.high, value))
        return self.start_px + (at - low) / (high - low) * (self.end_px - self.start_px)


def _draw_chart(title: str, lines: dict[str, list[Row]]) -> list[str]:
    points = {
        line: sorted((row.point.x, row.value, row.spread) for row in rows if row.point) for line, rows in lines.items()
    }
    xs = sorted({x for line in points.values() for x, _, _ in line})
    values = [end for line in points.values() for _, value, spread in line for end in (value, *(spread or ()))]
    x_axis = _axis_of(xs, _LEFT + 8, _WIDTH - _RIGHT - 8, from_zero=False)
    y_axis = _axis_of(values, _HEIGHT - _BOTTOM, _TOP + 18, from_zero=True)
    drawn = [f'<text class="title" x="12" y="20">{escape(title)}</text>', *_draw_axes(x_axis, y_axis, xs)]
    x_name = next(row.point.x_name for rows in lines.values() for row in rows if row.point)
    drawn.append(_write(_WIDTH / 2, _HEIGHT - 10, x_name))
    legend_x = float(_LEFT)
    for number, (name, line) in enumerate(points.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn += _draw_line(line, x_axis, y_axis, colour, names_values=len(points) == 1)
        if len(points) > 1:
            drawn.append(f'<rect x="{legend_x:.0f}" y="31" width="10" height="10" rx="2" fill="{colour}"/>')
            drawn.append(_write(legend_x + 14, 40, name, "start"))
            legend_x += 28 + _LETTER_PX * len(name)
    return drawn


def _draw_line(
    line: Sequence[tuple[float, float, tuple[float, float] | None]],
    x_axis: _Axis,
    y_axis: _Axis,
    colour: str,
    *,
    names_values: bool,
) -> list[str]:
    placed = [(x_axis.place(x), y_axis.place(max(value, y_axis.low))) for x, value, _ in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    drawn = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for (at, value, spread), (x, y) in zip(line, placed, strict=True):
        told = f"{write_number(at)}: {write_number(value)}"
        if spread is not None:
            told += f" ({' – '.join(map(write_number, spread))})"
            low, high = (y_axis.place(max(end, y_axis.low)) for end in spread)
            drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>')
        drawn.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(told)}</title></circle>'
        )
        if names_values:
            drawn.append(_write(x, (y if spread is None else min(y, high)) - 8, write_number(value)))
    return drawn


def _draw_axes(x_axis: _Axis, y_axis: _Axis, xs: Sequence[float]) -> list[str]:
    right = _WIDTH - _RIGHT
    bottom = _HEIGHT - _BOTTOM
    drawn = [f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>']
    for tick in _ticks(y_axis):
        y = y_axis.place(tick)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(_write(_LEFT - 6, y + 4, write_number(tick), "end"))
    for x in xs:
        place = x_axis.place(x)
        drawn.append(f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        drawn.append(_write(place, bottom + 17, write_number(x)))
    return drawn


def _write(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _axis_of(values: Sequence[float], start_px: float, end_px: float, *, from_zero: bool) -> _Axis:
    low = min(values)
    high = max(values)
    if low > 0 and high / low > _WIDE_SPAN:
        if from_zero:  # whole powers of ten, so that there are lines to read the figures by
            low = 10.0 ** floor(log10(low))
            high = 10.0 ** ceil(log10(high))
        return _Axis(low, high, start_px, end_px, is_log=True)
    low = min(low, 0.0) if from_zero else low
    return _Axis(low, high if high > low else low + 1, start_px, end_px, is_log=False)


def _ticks(axis: _Axis) -> list[float]:
    if axis.is_log:
        return [10.0**power for power in range(floor(log10(axis.low)), ceil(log10(axis.high)) + 1)]
    step = 10.0 ** floor(log10(axis.high - axis.low))
    for divisor in (1, 2, 5, 10):
        if (axis.high - axis.low) / (step / divisor) >= 4:
            step /= divisor
            break
    first = ceil(axis.low / step)
    return [step * number for number in range(first, floor(axis.high / step) + 1)]
