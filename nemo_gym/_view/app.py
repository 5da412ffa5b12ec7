# SPDX-License-Identifier: Apache-2.0
"""The page in Gradio. Links, keys and inputs all come down to a new `Place`; one function shows a place.

Model-written text reaches the page through `gr.HTML` only, escaped; never through components that render markdown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from typing import Any

import gradio as gr

from nemo_gym._reports.html_elements import SCRIPT, STYLE
from nemo_gym._reports.query import GROUP_SORTS, SORTS, Filters
from nemo_gym._view import panels
from nemo_gym._view.location import TABS, Place, read_place
from nemo_gym._view.open_files import OpenFile, Shelf
from nemo_gym._view.panels import settled
from nemo_gym._view.tables import Listing, listing, tag
from nemo_gym.errors import GymError

_IDLE_S, _SEARCHING_S = 1.0, 0.3
_COLOURS = (
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
"""Names of Gradio's theme, each with its colour in the light and in the dark."""


class Viewer:
    """The page over the files of a shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.blocks = gr.Blocks(title=_title(shelf), analytics_enabled=False, fill_width=True)
        with self.blocks:
            self._build()
            self._wire()

    def _build(self) -> None:
        self._place = gr.HTML(elem_id="ngp-place", js_on_load=asset("page.js"))
        self._header = panel("ngp-header")
        self._panes = {}
        for tab in TABS:
            with gr.Column(visible=False, elem_id=f"ngp-{tab}") as self._panes[tab]:
                if tab == "overview":
                    self._overview = panel("ngp-numbers")
                elif tab == "browse":
                    self._browse = BrowseTab()
                elif tab == "rollout":
                    self._bar, self._rollout = panel("ngp-bar"), panel("ngp-conversation")
                else:
                    self._compare = panel("ngp-comparison")

    def _wire(self) -> None:
        shown = [self._place, self._header, *self._panes.values(), self._overview, *self._browse.outputs]
        outputs = [*shown, self._bar, self._rollout, self._compare]
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

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _answer(self, event: gr.EventData) -> Any:
        """What the page shows after a link, a key, a filter, some typing, or a look at whether there is more."""
        before = settled(self._shelf, read_place(event.query if isinstance(event.query, str) else ""))
        told, updates = self._answered(before, event)
        return updates | {self._place: _written({**told, "number": str(event.number)})}

    def _answered(self, before: Place, event: gr.EventData) -> "_Answer":
        if event.kind == "look":
            version = self._version(before)
            if event.seen == version:
                return _told(before, version, _IDLE_S), {}
            # A rollout is drawn again only if more of it is known now: a reader may have unfolded parts of it.
            return self._shown(before, _Parts(opened=_known(event.seen) != _known(version)))
        if event.kind == "search":
            return self._shown(settled(self._shelf, self._browse.place_searched(before, event.text)), _Parts())
        if event.kind == "filter":
            place = settled(self._shelf, self._browse.place_of(before, event.values))
            return self._shown(place, _Parts())
        return self._shown(before, _Parts(tab=True, opened=True, inputs=True))

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _shown(self, place: Place, parts: "_Parts") -> "_Answer":
        """The page at a place: what lives, and those parts that are asked for."""
        file = self._shelf.files[place.file]
        seen, look_s = self._version(place), _IDLE_S
        updates = self._living(place, opened=parts.opened)
        if place.tab == "browse":
            listing = self._browse.listed(file, place)
            updates[self._browse.table] = listing.html
            if not listing.complete:
                seen, look_s = "", _SEARCHING_S
            if parts.inputs:
                updates |= self._browse.filter_updates(file, place)
        if parts.tab:
            updates |= {pane: SHOWN if tab == place.tab else HIDDEN for tab, pane in self._panes.items()}
        return _told(place, seen, look_s), updates | {self._header: panels.header(self._shelf, place)}

    def _living(self, place: Place, *, opened: bool) -> dict[Any, Any]:
        """The parts of a tab that change while a file grows; and the rollout, which does not, if it was just opened."""
        file = self._shelf.files[place.file]
        if place.tab == "overview":
            return {self._overview: panels.overview_page(self._shelf, place)}
        if place.tab == "compare":
            return {self._compare: _unless_lost(lambda: panels.comparison(self._shelf, place))}
        if place.tab == "browse":
            return {}
        if _is_awaited(file, place):
            return {self._rollout: _awaited(file, place), self._bar: ""}
        updates = {self._bar: panels.rollout_bar(file, place)}
        return updates | {self._rollout: _whole_rollout(file, place)} if opened else updates

    def _version(self, place: Place) -> str:
        """Something that differs when the page at a place would differ."""
        file = self._shelf.files[place.file]
        if place.tab == "overview":
            file.overview()
            return repr((file.overview_version(), file.version()))
        shown = [file] if place.tab != "compare" else self._shelf.files
        known = "whole"
        if place.tab == "rollout" and place.row is not None:
            is_planned = not _is_awaited(file, place) and file.run_files.find_planned(place.row) is not None
            known = "awaited" if _is_awaited(file, place) else "with-its-plan" if is_planned else "alone"
        return f"{known} {[one.version() for one in shown]}"


@dataclass(frozen=True)
class _Parts:
    """Which parts of the page an answer has besides those that live."""

    tab: bool = False
    opened: bool = False
    inputs: bool = False


_Answer = tuple[dict[str, str], dict[Any, Any]]
"""What the page remembers, and what its components show."""


def _told(place: Place, seen: str, look_s: float) -> dict[str, str]:
    """Where the page is, what it has seen, and when to look for more."""
    return {
        "place": place.query(),
        "view": f"{place.tab} {place.file} {place.row if place.tab == 'rollout' else place.page}",
        "seen": seen,
        "look-ms": str(round(1000 * look_s)),
    }


def _written(told: dict[str, str]) -> str:
    return "<i" + "".join(f' data-{name}="{escape(value)}"' for name, value in told.items()) + "></i>"


def _known(seen: str) -> str:
    """How much of a rollout a version has seen."""
    return seen.partition(" ")[0]


def _is_awaited(file: OpenFile, place: Place) -> bool:
    return place.tab == "rollout" and place.row is not None and place.row >= file.index.n_rows


def _whole_rollout(file: OpenFile, place: Place) -> str:
    if place.row is None:
        return tag("div", "ngp", tag("p", "ngp-empty", "There is nothing to show yet."))
    row = place.row
    return _unless_lost(lambda: panels.rollout(file, row))


def _unless_lost(write: Callable[[], str]) -> str:
    try:
        return write()
    except GymError as error:  # the file was replaced under us
        return tag("div", "ngp", tag("p", "ngp-empty", escape(str(error))))


def _awaited(file: OpenFile, place: Place) -> str:
    share = f"{file.progress().share:.0%}"
    text = f"Row {place.row} is not read yet, {share} of the file is; it is shown as soon as it is."
    return tag("div", "ngp", tag("p", "ngp-empty", text))


def _title(shelf: Shelf) -> str:
    return f"{', '.join(shelf.files[number].name for number in shelf.runs)} · NeMo Gym"


def asset(name: str) -> str:
    """A file that lies beside this one."""
    return files("nemo_gym._view").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """All CSS of the page."""
    return f"{STYLE}\n{asset('page.css')}"


def head() -> str:
    """What goes into the head of the page."""
    return f"<script>{SCRIPT}</script>"


def theme() -> gr.themes.Base:
    """Gradio's plain theme in the colours of the rollouts, with fonts of the reader's system: none is fetched."""
    plain = gr.themes.Base(
        primary_hue="blue",
        font=["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
    )
    pairs = {name: value for key, light, dark in _COLOURS for name, value in ((key, light), (f"{key}_dark", dark))}
    return plain.set(**pairs, block_radius="10px", input_radius="8px")


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


HIDDEN = gr.update(elem_classes="ngp-none")
SHOWN = gr.update(visible=True, elem_classes="")


def panel(name: str, html: str = "") -> gr.HTML:
    """A place for HTML that the page writes itself."""
    return gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)
