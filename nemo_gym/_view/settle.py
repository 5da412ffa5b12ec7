# SPDX-License-Identifier: Apache-2.0
"""A place as the open files allow it: links may name what is not there, or leave out what a tab needs."""

from nemo_gym._reports.query import GROUP_SORTS, SORTS
from nemo_gym._view import panels
from nemo_gym._view.place import Place
from nemo_gym._view.shelf import OpenFile, Shelf

_WAIT_S = 2.0
"""How long a link to a row waits for the index to get there."""


def settled(shelf: Shelf, place: Place) -> Place:
    """`place` with what is wrong or missing put right."""
    last = len(shelf.files) - 1
    place = place.at(file=min(place.file, last))
    if place.against is not None and place.against not in shelf.runs:
        place = place.at(against=None)
    beside = place.beside
    if beside is not None and (beside.file > last or not _is_there(shelf.files[beside.file], beside.row)):
        place = place.at(beside=None)
    file = shelf.files[place.file]
    if (
        place.row is not None
        and not _is_there(file, place.row)
        and (file.progress().complete or place.tab != "rollout")
    ):
        place = place.at(row=None, beside=None)
    place = _sorted(file, place)
    if place.tab == "rollout" and place.row is None:
        return place.at(row=panels.first_row(file, place))
    if place.tab == "compare" and place.beside is None and (len(shelf.runs) == 1 or place.file not in shelf.runs):
        return panels.two_of_a_task(shelf, place)
    return place


def _sorted(file: OpenFile, place: Place) -> Place:
    known = GROUP_SORTS if place.grouped else (*SORTS, *file.browser.choices().fields)
    return place if place.sort in ("", *known) else place.at(sort="", descending=False)


def _is_there(file: OpenFile, row: int) -> bool:
    file.index.wait_for_rows(row + 1, _WAIT_S)
    return row < file.index.n_rows
