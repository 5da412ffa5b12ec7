# SPDX-License-Identifier: Apache-2.0
"""The page in Gradio. Links, keys and inputs all come down to a new `Place`; one function shows a place.

Model-written text reaches the page through `gr.HTML` only, escaped; never through components that render markdown.
"""

from html import escape
from importlib.resources import files
from itertools import count
from typing import Any

import gradio as gr

from nemo_gym._reports.html import SCRIPT, STYLE
from nemo_gym._view import panels
from nemo_gym._view.browse_tab import BrowseTab
from nemo_gym._view.links import tag
from nemo_gym._view.overview_tab import OverviewTab
from nemo_gym._view.place import TABS, Place, read_place
from nemo_gym._view.settle import settled
from nemo_gym._view.shelf import OpenFile, Shelf
from nemo_gym._view.widgets import panel
from nemo_gym.errors import GymError

_IDLE_S, _SEARCHING_S = 1.0, 0.3
_ANSWERS = count()
"""The page notices an answer by its number, also where it is the same place again."""
_AWAITED = "awaited"
"""Seen instead of a rollout that the index has not reached."""

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
        self._query, self._seen = gr.State(""), gr.State("")
        self._timer = gr.Timer(_IDLE_S)
        self._place = gr.HTML(elem_id="ngp-place", js_on_load=asset("page.js"))
        self._header = panel("ngp-header")
        self._panes = {}
        for tab in TABS:
            with gr.Column(visible=False, elem_id=f"ngp-{tab}") as self._panes[tab]:
                if tab == "overview":
                    self._overview = OverviewTab()
                elif tab == "browse":
                    self._browse = BrowseTab()
                elif tab == "rollout":
                    self._bar = panel("ngp-bar")
                    self._rollout = panel("ngp-conversation")
                else:
                    self._compare = panel("ngp-comparison")

    def _wire(self) -> None:
        quick: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
        always = [self._query, self._seen, self._place, self._header, self._timer]
        tabs = [*self._panes.values(), *self._overview.outputs, self._browse.table, self._bar]
        all_of_it = [*always, *tabs, *self._browse.inputs, self._browse.search, self._rollout, self._compare]
        self._place.input(self._visit, None, all_of_it, trigger_mode="always_last", **quick)
        self._timer.tick(self._tick, [self._query, self._seen], [*always, *tabs, self._rollout, self._compare], **quick)
        gr.on(
            [one.input for one in self._browse.inputs],
            self._filter,
            [self._query, *self._browse.inputs],
            [*always, self._browse.table, self._browse.sort],
            trigger_mode="always_last",
            **quick,
        )

    # --- what happens ------------------------------------------------------------------------------------------------

    def _visit(self, event: gr.EventData) -> dict[Any, Any]:
        """A link was followed, or the page was opened."""
        query = event.query
        place = settled(self._shelf, read_place(query if isinstance(query, str) else ""))
        file = self._shelf.files[place.file]
        updates = self._frame(place)
        updates |= {pane: gr.update(visible=tab == place.tab) for tab, pane in self._panes.items()}
        if place.tab == "browse":
            updates |= self._browse.filter_updates(file, place)
            if not event.typed:  # it would be taken from under the reader's fingers
                updates[self._browse.search] = self._browse.search_html(place.filters.text)
        return updates | self._living(place, opened=True)

    def _filter(self, query: str, *values: Any) -> dict[Any, Any]:
        """A filter was set."""
        before = read_place(query)
        place = settled(self._shelf, self._browse.place_of(before, values))
        updates = self._frame(place) | self._living(place)
        if place.grouped != before.grouped:
            sort = self._browse.filter_updates(self._shelf.files[place.file], place)[self._browse.sort]
            updates[self._browse.sort] = sort
        return updates

    def _tick(self, query: str, seen: str) -> Any:
        """Time went by: the file may have grown, a search may have got further."""
        if not query:
            return gr.skip()
        place = settled(self._shelf, read_place(query))
        if seen == self._version(place):
            return gr.skip()
        return self._frame(place) | self._living(place, opened=seen == _AWAITED)

    # --- what is shown -----------------------------------------------------------------------------------------------

    def _frame(self, place: Place) -> dict[Any, Any]:
        """What surrounds every tab."""
        query = place.query()
        view = f"{place.tab} {place.file} {place.row if place.tab == 'rollout' else place.page}"
        return {
            self._query: query,
            self._place: f'<i data-place="{escape(query)}" data-view="{escape(view)}"'
            f' data-answer="{next(_ANSWERS)}"></i>',
            self._header: panels.header(self._shelf, place),
        }

    def _living(self, place: Place, *, opened: bool = False) -> dict[Any, Any]:
        """The parts of a tab that change while a file grows; and the rollout, which does not, if it was just opened."""
        file = self._shelf.files[place.file]
        updates: dict[Any, Any] = {self._timer: gr.Timer(_IDLE_S), self._seen: self._version(place)}
        if place.tab == "overview":
            updates |= self._overview.updates(file, place)
        elif place.tab == "browse":
            listing = self._browse.shown(file, place)
            updates[self._browse.table] = listing.html
            if not listing.complete:
                updates |= {self._timer: gr.Timer(_SEARCHING_S), self._seen: ""}
        elif place.tab == "rollout" and place.row is not None and place.row >= file.index.n_rows:
            updates |= {self._rollout: _awaited(file, place.row), self._bar: "", self._seen: _AWAITED}
        elif place.tab == "rollout":
            updates[self._bar] = panels.rollout_bar(file, place)
            if opened:
                updates[self._rollout] = _whole_rollout(file, place)
        else:
            updates[self._compare] = panels.comparison(self._shelf, place)
        return updates

    def _version(self, place: Place) -> str:
        """Something that differs when the page at a place would differ."""
        file = self._shelf.files[place.file]
        if place.tab == "overview":
            file.overview()
            return repr((file.overview_version(), file.version()))
        shown = [file] if place.tab != "compare" else self._shelf.files
        return repr([one.version() for one in shown])


def _whole_rollout(file: OpenFile, place: Place) -> str:
    if place.row is None:
        return tag("div", "ngp", tag("p", "ngp-empty", "There is nothing to show yet."))
    try:
        return panels.rollout(file, place.row)
    except GymError as error:  # the file was replaced under us
        return tag("div", "ngp", tag("p", "ngp-empty", escape(str(error))))


def _awaited(file: OpenFile, row: int) -> str:
    text = f"Row {row} is not read yet ({file.progress().share:.0%} of the file is); it is shown as soon as it is."
    return tag("div", "ngp", tag("p", "ngp-empty", text))


def _title(shelf: Shelf) -> str:
    return f"{', '.join(file.name for file in shelf.files)} · NeMo Gym"


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
