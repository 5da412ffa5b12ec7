# SPDX-License-Identifier: Apache-2.0
"""The page in Gradio. Every link, key and input leads to a new `Location`, which one function shows.

Model-written text reaches the page through `gr.HTML` only, escaped; never through components that render markdown.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from nemo_gym._viewer.files.row_selection import GROUP_SORTS, SORTS, Filters
from nemo_gym._viewer.html.elements import STYLE, Html, element
from nemo_gym._viewer.page import panels
from nemo_gym._viewer.page.list_tables import render_empty, render_list
from nemo_gym._viewer.page.location import TABS, Location, parse_location
from nemo_gym._viewer.page.open_files import OpenFile, OpenFiles
from nemo_gym.errors import GymError

HIDDEN = gr.update(elem_classes="ngp-none")
SHOWN = gr.update(visible=True, elem_classes="")
_IDLE_S = 1.0
_SEARCHING_S = 0.3
_COLORS = (
    ("body_background_fill", "#ffffff", "#101216"),
    ("body_text_color", "#1c1f26", "#e6e8ee"),
    ("body_text_color_subdued", "#5b6270", "#9aa2b1"),
    ("background_fill_primary", "#ffffff", "#16181d"),
    ("background_fill_secondary", "#f6f7f9", "#1d2027"),
    ("block_background_fill", "#ffffff", "#16181d"),
    ("block_label_text_color", "#5b6270", "#9aa2b1"),
    ("block_title_text_color", "#5b6270", "#9aa2b1"),
    ("border_color_primary", "#e2e5ea", "#2d323c"),
    ("block_border_color", "#e2e5ea", "#2d323c"),
    ("input_background_fill", "#f6f7f9", "#1d2027"),
    ("checkbox_label_background_fill", "#f6f7f9", "#1d2027"),
    ("checkbox_label_background_fill_selected", "#e8effc", "#26324a"),
    ("link_text_color", "#2f5fd0", "#8ab0ff"),
)
"""Names of Gradio's theme, each with its color in the light and in the dark."""


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
_COLUMNS_INFO = "Fields of the task and of the verifier; if none is chosen, the scores from the verifier."
_OUTCOMES = [("All", "all"), ("Scored", "scored"), ("Failed", "failed")]

# Gradio's own field does not notice what is pasted or deleted; this one is read and written by `page.js`.
_SEARCH = element(
    "div",
    element("label", "Search", for_="ngp-text"),
    element("input", id="ngp-text", type="search", placeholder="Any text of a row"),
    class_="ngp ngp-search-field",
)


_FOLDER = Path(__file__).parent
STYLE_SHEET = f"{STYLE}\n{(_FOLDER / 'page.css').read_text(encoding='utf-8')}"
_SCRIPT = (_FOLDER / "page.js").read_text(encoding="utf-8")


class Viewer:
    """The page over the open files."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        title = f"{', '.join(files.files[number].name for number in files.runs)} · NeMo Gym"
        self.blocks = gr.Blocks(title=title, analytics_enabled=False, fill_width=True)
        with self.blocks:
            self._build()
            self._wire()

    def _build(self) -> None:
        self._place = gr.HTML(elem_id="ngp-place", js_on_load=_SCRIPT)
        self._header = make_panel("ngp-header")
        self._panes = {}
        for tab in TABS:
            with gr.Column(visible=False, elem_id=f"ngp-{tab}") as self._panes[tab]:
                if tab == "overview":
                    self._overview = make_panel("ngp-numbers")
                elif tab == "browse":
                    self._browse = BrowseTab()
                elif tab == "rollout":
                    self._bar = make_panel("ngp-bar")
                    self._rollout = make_panel("ngp-conversation")
                else:
                    self._compare = make_panel("ngp-comparison")

    def _wire(self) -> None:
        outputs = [self._place, self._header, *self._panes.values(), self._overview]
        outputs += [self._browse.table, *self._browse.inputs, self._bar, self._rollout, self._compare]
        # The page asks one question at a time by itself: there is nothing to put into a queue.
        self._place.input(
            self._answer,
            None,
            outputs,
            queue=False,
            show_progress="hidden",
            trigger_mode="multiple",
            api_visibility="private",
        )
        hand_on = f"(...values) => {{ window.ngpFilter(...values.slice(0, {len(self._browse.inputs)})) }}"
        gr.on([one.input for one in self._browse.inputs], None, self._browse.inputs, None, js=hand_on)

    def _answer(self, event: gr.EventData) -> Any:
        """Return what the page shows after a link, a key, a filter, some typing, or a look at whether there is more."""
        query = event.query if isinstance(event.query, str) else ""
        location = panels.complete_location(self._files, parse_location(query))
        kind = event.kind
        updates: dict[Any, Any] = {}
        if kind == "look" and event.seen == (version := self._get_version(location)):
            return {self._place: _write_state(location, version, _IDLE_S, event.number)}
        if kind == "search":
            changed = location.change(filters=replace(location.filters, text=event.text), page=0)
            location = panels.complete_location(self._files, changed)
        elif kind == "filter":
            location = panels.complete_location(self._files, self._browse.read_inputs(location, event.values))
        elif kind != "look":
            updates |= {pane: SHOWN if tab == location.tab else HIDDEN for tab, pane in self._panes.items()}
            if location.tab == "browse":
                updates |= self._browse.set_inputs(self._files.files[location.file], location)
        seen = self._get_version(location)
        look_s = _IDLE_S
        # A rollout is drawn again only if it was just opened or more of it is known now: a reader may have unfolded it.
        opened = kind not in ("look", "search", "filter") or (
            kind == "look" and event.seen.partition(" ")[0] != seen.partition(" ")[0]
        )
        content, complete = self._render_tab(location, opened=opened)
        if not complete:
            seen = ""
            look_s = _SEARCHING_S
        state = _write_state(location, seen, look_s, event.number)
        header = panels.render_header(self._files, location)
        return content | updates | {self._header: header, self._place: state}

    def _render_tab(self, location: Location, *, opened: bool) -> tuple[dict[Any, Any], bool]:
        """Render what changes while a file grows, and a rollout only if it was `opened`; return if all was searched."""
        file = self._files.files[location.file]
        if location.tab == "overview":
            return {self._overview: panels.render_overview_tab(self._files, location)}, True
        if location.tab == "browse":
            html, complete = render_list(file, location)
            return {self._browse.table: html}, complete
        if location.tab == "compare":
            compared = _render_unless_lost(lambda: panels.render_compare_tab(self._files, location))
            return {self._compare: compared}, True
        if _is_awaited(file, location):
            share = f"{file.index.progress.share:.0%}"
            text = f"Row {location.row} is not read yet, {share} of the file is; it is shown as soon as it is."
            return {self._rollout: render_empty(text), self._bar: ""}, True
        content: dict[Any, Any] = {self._bar: panels.render_rollout_bar(file, location)}
        if opened and (row := location.row) is not None:
            content[self._rollout] = _render_unless_lost(lambda: panels.render_rollout_tab(file, row))
        elif opened:
            content[self._rollout] = render_empty("There is nothing to show yet.")
        return content, True

    def _get_version(self, location: Location) -> str:
        """Return a text that changes when the page at a location would look different."""
        file = self._files.files[location.file]
        if location.tab == "overview":
            file.get_overview()
            return repr((file.overview_version, file.version))
        shown = self._files.files if location.tab == "compare" else [file]
        known = "whole"
        if _is_awaited(file, location):
            known = "awaited"
        elif location.tab == "rollout" and location.row is not None:
            known = "alone" if file.run_files.find_planned(location.row) is None else "with-its-plan"
        return f"{known} {[one.version for one in shown]}"


class BrowseTab:
    """The components of the list of rollouts, and what they show at a location."""

    def __init__(self) -> None:
        with gr.Row(elem_classes="ngp-filters", equal_height=True):
            with gr.Column(scale=3, min_width=220, elem_classes="ngp-search"):
                make_panel("ngp-search", _SEARCH)
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
        self.table = make_panel("ngp-listing")

    @property
    def inputs(self) -> list[Any]:
        """The components that a reader sets, in the order that `read_inputs` takes their values."""
        return [
            *(self.outcome, self.sort, self.descending, self.agents, self.task, self.low, self.high),
            *(self.tool, self.finish, self.failure, self.troubles, self.columns),
        ]

    def read_inputs(self, location: Location, values: Sequence[Any]) -> Location:
        """Return `location` with what the inputs say, on the first page if that is something new."""
        outcome, sort, descending, agents, task, low, high, tool, finish, failure, troubles, columns = values
        filters = Filters(
            text=location.filters.text,
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
        usual = (GROUP_SORTS if location.grouped else SORTS)[0]
        there = location.change(
            filters=filters,
            sort="" if sort in (usual, None) else sort,
            descending=bool(descending),
            columns=tuple(columns or ()),
        )
        if there == location:
            return location
        return there.change(page=0)

    def set_inputs(self, file: OpenFile, location: Location) -> dict[Any, Any]:
        """Return the inputs as a location sets them, with what the file offers to choose from."""
        chosen = location.filters
        offered = file.browser.list_choices()
        sorts = GROUP_SORTS if location.grouped else (*SORTS, *offered.fields)
        return {
            self.outcome: chosen.outcome,
            self.sort: gr.Dropdown(
                [(_SORT_NAMES.get(name, name), name) for name in sorts], value=location.sort or sorts[0]
            ),
            self.descending: location.descending,
            self.agents: gr.Dropdown(list(offered.agents), value=list(chosen.agents)),
            self.task: chosen.task,
            self.low: chosen.reward_min,
            self.high: chosen.reward_max,
            self.tool: gr.Dropdown([_ANY, *offered.tools], value=chosen.tool or ""),
            self.finish: gr.Dropdown([_ANY, *offered.finish_reasons], value=chosen.finish_reason or ""),
            self.failure: gr.Dropdown([_ANY, *offered.failure_kinds], value=chosen.failure_kind or ""),
            self.troubles: [name for _, name in _TROUBLES if getattr(chosen, name)],
            self.columns: gr.Dropdown(
                list(dict.fromkeys((*offered.columns, *offered.fields))), value=list(location.columns)
            ),
        }


def make_panel(name: str, html: str = "") -> gr.HTML:
    """Make a component for HTML that we render ourselves."""
    return gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)


def _write_state(location: Location, seen: str, look_s: float, number: object) -> Html:
    """Write down where the page is, what it has seen, and when to look for more, for `page.js` to read."""
    position = location.row if location.tab == "rollout" else location.page
    return element(
        "i",
        data_place=location.to_query(),
        data_view=f"{location.tab} {location.file} {position}",
        data_seen=seen,
        data_look_ms=str(round(1000 * look_s)),
        data_number=str(number),
    )


def _is_awaited(file: OpenFile, location: Location) -> bool:
    return location.tab == "rollout" and location.row is not None and location.row >= file.index.n_rows


def _render_unless_lost(render: Callable[[], str]) -> str:
    try:
        return render()
    except GymError as error:  # the file was replaced under us
        return render_empty(str(error))


def make_theme() -> gr.themes.Base:
    """Return Gradio's plain theme in the colors of the rollouts, with fonts of the reader's system."""
    plain = gr.themes.Base(
        primary_hue="blue",
        font=["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
    )
    pairs = {name: value for key, light, dark in _COLORS for name, value in ((key, light), (f"{key}_dark", dark))}
    return plain.set(**pairs, block_radius="10px", input_radius="8px")
