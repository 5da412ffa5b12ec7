# SPDX-License-Identifier: Apache-2.0
"""The Browse tab in Gradio: inputs for the filters above a table that `tables.py` writes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from nemo_gym._reports.query import GROUP_SORTS, SORTS, Filters
from nemo_gym._view.links import tag
from nemo_gym._view.place import Place
from nemo_gym._view.shelf import OpenFile
from nemo_gym._view.tables import Listing, listing
from nemo_gym._view.widgets import panel

_SORT_NAMES = {
    "file": "file order",
    "finish_reason": "finish reason",
    "tool_calls": "tool calls",
    "input_tokens": "tokens read",
    "output_tokens": "tokens written",
    "pass_rate": "pass rate",
}
_ANY = ("any", "")
_TROUBLES = [("a crashed tool", "tool_error"), ("a cut-off end", "cut_off")]
_COLUMNS_INFO = "Fields of the task and of the verifier; if none is chosen, the numbers of the verifier."
_OUTCOMES = [("All", "all"), ("Scored", "scored"), ("Failed", "failed")]

# Gradio's own field does not notice what is pasted or deleted; this one is read and written by `page.js`.
_SEARCH = tag(
    "div",
    "ngp ngp-search-field",
    '<label for="ngp-text">Search</label><input id="ngp-text" type="search" placeholder="Any text of a row">',
)


class BrowseTab:
    """Its components, and what they show at a place."""

    def __init__(self) -> None:
        with gr.Row(elem_classes="ngp-filters", equal_height=True):
            with gr.Column(scale=3, min_width=220, elem_classes="ngp-search"):
                panel("ngp-search", _SEARCH)
            self.outcome = gr.Radio(_OUTCOMES, value="all", label="Outcome", scale=3, min_width=300)
            self.sort = gr.Dropdown([], label="Sort by", scale=2, min_width=140, allow_custom_value=True)
            with gr.Column(scale=1, min_width=140, elem_classes="ngp-checks"):
                self.descending = gr.Checkbox(label="Highest first")
        with gr.Accordion("More filters and columns", open=False, elem_id="ngp-more-filters"):
            with gr.Row(elem_classes="ngp-filters"):
                self.agents = gr.Dropdown([], label="Agents", multiselect=True, min_width=180, allow_custom_value=True)
                self.task = gr.Number(label="Task", precision=0, minimum=0, min_width=90, value=None)
                self.low = gr.Number(label="Reward from", min_width=90, value=None)
                self.high = gr.Number(label="to", min_width=90, value=None)
                self.tool = gr.Dropdown([], label="Tool used", min_width=140, allow_custom_value=True)
                self.finish = gr.Dropdown([], label="Finish reason", min_width=140, allow_custom_value=True)
                self.failure = gr.Dropdown([], label="Failure", min_width=140, allow_custom_value=True)
                self.troubles = gr.CheckboxGroup(_TROUBLES, label="Only those with", min_width=240)
                self.columns = gr.Dropdown(
                    [], label="Columns", multiselect=True, min_width=240, allow_custom_value=True, info=_COLUMNS_INFO
                )
        self.table = panel("ngp-listing")

    @property
    def inputs(self) -> list[Any]:
        """The components that a reader sets, in the order that `place_of` takes their values."""
        return [
            *(self.outcome, self.sort, self.descending, self.agents, self.task, self.low, self.high),
            *(self.tool, self.finish, self.failure, self.troubles, self.columns),
        ]

    @property
    def outputs(self) -> list[Any]:
        """Every component that may be set."""
        return [self.table, *self.inputs]

    def place_searched(self, place: Place, text: str) -> Place:
        """`place` where only rows that hold a text are left."""
        return place.at(filters=replace(place.filters, text=text), page=0)

    def place_of(self, place: Place, values: Sequence[Any]) -> Place:
        """`place` with what the inputs say, on the first page if that is something new."""
        outcome, sort, descending, agents, task, low, high, tool, finish, failure, troubles, columns = values
        filters = Filters(
            text=place.filters.text,
            outcome=outcome or "all",
            agents=tuple(agents or ()),
            task=None if task is None else int(task),
            reward_min=low,
            reward_max=high,
            tool=tool or None,
            finish_reason=finish or None,
            failure_kind=failure or None,
            tool_error="tool_error" in (troubles or ()),
            cut_off="cut_off" in (troubles or ()),
        )
        usual = (GROUP_SORTS if place.grouped else SORTS)[0]
        there = place.at(
            filters=filters,
            sort="" if sort in (usual, None) else sort,
            descending=bool(descending),
            columns=tuple(columns or ()),
        )
        return there if there == place else there.at(page=0)

    def filter_updates(self, file: OpenFile, place: Place) -> dict[Any, Any]:
        """The inputs as a place sets them, with what the file offers to choose from."""
        chosen, offered = place.filters, file.browser.choices()
        sorts = GROUP_SORTS if place.grouped else (*SORTS, *offered.fields)
        return {
            self.outcome: chosen.outcome,
            self.sort: gr.Dropdown(
                [(_SORT_NAMES.get(name, name), name) for name in sorts], value=place.sort or sorts[0]
            ),
            self.descending: place.descending,
            self.agents: gr.Dropdown(list(offered.agents), value=list(chosen.agents)),
            self.task: chosen.task,
            self.low: chosen.reward_min,
            self.high: chosen.reward_max,
            self.tool: gr.Dropdown([_ANY, *offered.tools], value=chosen.tool or ""),
            self.finish: gr.Dropdown([_ANY, *offered.finish_reasons], value=chosen.finish_reason or ""),
            self.failure: gr.Dropdown([_ANY, *offered.failure_kinds], value=chosen.failure_kind or ""),
            self.troubles: [name for _, name in _TROUBLES if getattr(chosen, name)],
            self.columns: gr.Dropdown(
                list(dict.fromkeys((*offered.columns, *offered.fields))), value=list(place.columns)
            ),
        }

    def listed(self, file: OpenFile, place: Place) -> Listing:
        """The table at a place."""
        return listing(file, place)
