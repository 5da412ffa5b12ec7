# SPDX-License-Identifier: Apache-2.0
"""Where a reader is in the viewer: the tab, the rollout, the filters; as a value, and as the query of a URL.

A link carries the whole location, so that it opens what its sender saw. Invalid parts of a query are ignored, because
links get cut off and edited.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, TypeVar, cast, get_args
from urllib.parse import parse_qs, urlencode

from nemo_gym._viewer.files.row_selection import Filters

Tab = Literal["overview", "browse", "rollout", "compare"]
TABS: tuple[str, ...] = get_args(Tab)
_OUTCOMES = ("all", "scored", "failed")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class RowRef:
    """A row of one of the open files, both counted from 0."""

    file: int
    row: int

    def __str__(self) -> str:
        return f"{self.file}.{self.row}"


@dataclass(frozen=True)
class Location:
    """All that decides what the page shows."""

    tab: Tab = "overview"
    file: int = 0
    agent: str = ""
    """The agent whose overview is shown; empty for the first."""
    row: int | None = None
    beside: RowRef | None = None
    """The rollout that `row` is compared with."""
    against: int | None = None
    """The file that `file` is compared with."""
    filters: Filters = field(default_factory=Filters)
    sort: str = ""
    """What rows are sorted by; empty for the order of the file, or of the tasks."""
    descending: bool = False
    grouped: bool = False
    """The list shows tasks instead of rollouts."""
    columns: tuple[str, ...] = ()
    """The fields that the list shows as columns; empty for the scores from the verifier."""
    page: int = 0

    def change(self, **changes: Any) -> "Location":
        """Return this location with some of it changed."""
        return replace(self, **changes)

    def to_query(self) -> str:
        """Return the location as the query of a URL, `?` included; defaults are left out."""
        chosen = self.filters
        pairs: list[tuple[str, object]] = [
            ("tab", self.tab),
            ("file", self.file or None),
            ("row", self.row),
            ("with", self.beside),
            ("against", self.against),
            ("of", self.agent or None),
            ("q", chosen.text or None),
            *(("agent", agent) for agent in chosen.agents),
            ("task", chosen.task),
            ("outcome", chosen.outcome if chosen.outcome != "all" else None),
            ("min", chosen.reward_min),
            ("max", chosen.reward_max),
            ("tool", chosen.tool),
            ("finish", chosen.finish_reason),
            ("failure", chosen.failure_kind),
            ("crashed", int(chosen.tool_error) or None),
            ("cut", int(chosen.cut_off) or None),
            *(("col", name) for name in self.columns),
            ("sort", f"{'-' if self.descending else ''}{self.sort}" or None),
            ("group", int(self.grouped) or None),
            ("page", self.page or None),
        ]
        return "?" + urlencode([(key, value) for key, value in pairs if value is not None])


def parse_location(query: str) -> Location:
    """Return the location that the query of a URL stands for."""
    given = parse_qs(query.removeprefix("?"), errors="replace", max_num_fields=200)

    def read_text(key: str) -> str | None:
        return given[key][-1] if given.get(key) else None

    def read_choice(key: str, choices: Sequence[str]) -> Any:
        value = read_text(key)
        return value if value in choices else choices[0]

    def read_value(key: str, parse: Callable[[str], ValueT]) -> ValueT | None:
        said = read_text(key)
        if said is None:
            return None
        try:
            return parse(said)
        except ValueError:
            return None

    sort = read_text("sort") or ""
    return Location(
        tab=cast(Tab, read_choice("tab", TABS)),
        file=read_value("file", _parse_natural) or 0,
        agent=read_text("of") or "",
        row=read_value("row", _parse_natural),
        beside=read_value("with", _parse_row_ref),
        against=read_value("against", _parse_natural),
        filters=Filters(
            text=read_text("q") or "",
            reward_min=read_value("min", _parse_finite),
            reward_max=read_value("max", _parse_finite),
            agents=tuple(given.get("agent", ())),
            task=read_value("task", _parse_natural),
            outcome=read_choice("outcome", _OUTCOMES),
            tool=read_text("tool"),
            finish_reason=read_text("finish"),
            failure_kind=read_text("failure"),
            tool_error=read_text("crashed") == "1",
            cut_off=read_text("cut") == "1",
        ),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        grouped=read_text("group") == "1",
        columns=tuple(given.get("col", ())),
        page=read_value("page", _parse_natural) or 0,
    )


def _parse_natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    return int(text)


def _parse_finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _parse_row_ref(text: str) -> RowRef:
    file, _, row = text.partition(".")
    return RowRef(_parse_natural(file), _parse_natural(row))
