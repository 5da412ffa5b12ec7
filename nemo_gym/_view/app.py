# SPDX-License-Identifier: Apache-2.0
"""The page in Gradio. Links, keys and inputs all come down to a new `Place`; one function shows a place.

Model-written text reaches the page through `gr.HTML` only, escaped; never through components that render markdown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import gradio as gr

from nemo_gym._reports.html import SCRIPT, STYLE
from nemo_gym._view import panels
from nemo_gym._view.browse_tab import BrowseTab
from nemo_gym._view.links import tag
from nemo_gym._view.place import TABS, Place, read_place
from nemo_gym._view.settle import settled
from nemo_gym._view.shelf import OpenFile, Shelf
from nemo_gym._view.widgets import HIDDEN, SHOWN, panel
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
