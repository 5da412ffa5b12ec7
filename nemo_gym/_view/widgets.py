# SPDX-License-Identifier: Apache-2.0
"""Gradio components as this page uses them, in one place for all tabs."""

from typing import Any

import gradio as gr

from nemo_gym._view.plots import Plot

_HEIGHT = 240
_MOST_CHARACTERS, _FEW = 36, 4
"""So many characters fit below a plot on a narrow screen; more than a few longer labels are slanted."""
# Hidden by CSS: taken off the page, Gradio's plots go on to measure themselves, and fail.
HIDDEN = gr.update(elem_classes="ngp-none")
SHOWN = gr.update(visible=True, elem_classes="")
_COLORS = {"read": "#93c5fd", "written": "#2563eb"}


def panel(name: str, html: str = "") -> gr.HTML:
    """A place for HTML that the page writes itself."""
    return gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)


def bars(title: str) -> gr.BarPlot:
    """A bar plot, hidden until there is something to draw."""
    return gr.BarPlot(
        title=title,
        height=_HEIGHT,
        min_width=300,
        elem_classes="ngp-none",
        color_map=_COLORS,
        buttons=[],
    )


def points(title: str) -> gr.ScatterPlot:
    """A scatter plot, hidden until there is something to draw."""
    return gr.ScatterPlot(title=title, height=_HEIGHT, min_width=300, elem_classes="ngp-none", buttons=[])


def drawn(plot: Plot, *, color: str | None = None) -> Any:
    """The update that shows a plot."""
    if plot.is_empty:
        return HIDDEN
    import pandas  # type: ignore[import-untyped]

    axes: dict[str, Any] = {"x": plot.x, "y": plot.y, "x_title": plot.x, "y_title": plot.y, "color": color}
    if isinstance(plot.order[0], str):
        slanted = len(plot.order) > _FEW and sum(map(len, plot.order)) > _MOST_CHARACTERS
        axes |= {"sort": plot.order, "x_label_angle": -40 if slanted else 0, "y_lim": plot.y_range}
    return gr.update(value=pandas.DataFrame(plot.columns), elem_classes="", tooltip="all", **axes)
