# SPDX-License-Identifier: Apache-2.0
"""Where a reader is in the viewer: the tab, the rollout, the filters; as a value, and as the query of a URL.

A link carries the whole place, so that it opens what its sender saw. What a query says wrongly is left out, never an
error: links get cut off and edited.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, TypeVar, cast, get_args
from urllib.parse import parse_qs, urlencode

from nemo_gym._reports.query import Filters

Tab = Literal["overview", "browse", "rollout", "compare"]
Outcome = Literal["all", "scored", "failed"]
TABS: tuple[str, ...] = get_args(Tab)
_OUTCOMES: tuple[str, ...] = get_args(Outcome)
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Spot:
    """A row of one of the open files, both counted from 0."""

    file: int
    row: int


@dataclass(frozen=True)
class Place:
    """All that decides what the page shows."""

    tab: Tab = "overview"
    file: int = 0
    agent: str = ""
    """The agent whose overview is shown; empty for the first."""
    row: int | None = None
    beside: Spot | None = None
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
    """The fields that the list shows as columns; empty for the numbers of the verifier."""
    page: int = 0

    def at(self, **changes: Any) -> "Place":
        """This place with some of it changed."""
        return replace(self, **changes)

    def query(self) -> str:
        """The place as the query of a URL, `?` included; what is as usual is left out."""
        chosen = self.filters
        pairs: list[tuple[str, object]] = [
            ("tab", self.tab),
            ("file", self.file or None),
            ("row", self.row),
            ("with", f"{self.beside.file}.{self.beside.row}" if self.beside else None),
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
            ("crashed", 1 if chosen.tool_error else None),
            ("cut", 1 if chosen.cut_off else None),
            *(("col", name) for name in self.columns),
            ("sort", f"{'-' if self.descending else ''}{self.sort}" or None),
            ("group", 1 if self.grouped else None),
            ("page", self.page or None),
        ]
        return "?" + urlencode([(key, value) for key, value in pairs if value is not None])


def read_place(query: str, default: Place = Place()) -> Place:
    """The place that the query of a URL stands for."""
    given = parse_qs(query.removeprefix("?"), errors="replace", max_num_fields=200)
    if not set(given) & _KEYS:
        return default
    sort = _text(given, "sort") or ""
    return Place(
        tab=cast(Tab, _choice(given, "tab", TABS) or "overview"),
        file=_number(given, "file") or 0,
        agent=_text(given, "of") or "",
        row=_number(given, "row"),
        beside=_value(given, "with", _spot),
        against=_number(given, "against"),
        filters=_filters(given),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        grouped=_text(given, "group") == "1",
        columns=tuple(given.get("col", ())),
        page=_number(given, "page") or 0,
    )


_KEYS = frozenset(
    (
        *("tab", "file", "row", "with", "against", "of", "sort", "group", "page", "col"),
        *("q", "agent", "task", "outcome", "min", "max", "tool", "finish", "failure", "crashed", "cut"),
    )
)
_Given = Mapping[str, Sequence[str]]


def _filters(given: _Given) -> Filters:
    return Filters(
        text=_text(given, "q") or "",
        reward_min=_value(given, "min", _finite),
        reward_max=_value(given, "max", _finite),
        agents=tuple(given.get("agent", ())),
        task=_number(given, "task"),
        outcome=cast(Outcome, _choice(given, "outcome", _OUTCOMES) or "all"),
        tool=_text(given, "tool"),
        finish_reason=_text(given, "finish"),
        failure_kind=_text(given, "failure"),
        tool_error=_text(given, "crashed") == "1",
        cut_off=_text(given, "cut") == "1",
    )


def _text(given: _Given, key: str) -> str | None:
    return given[key][-1] if given.get(key) else None


def _choice(given: _Given, key: str, choices: Sequence[str]) -> str | None:
    value = _text(given, key)
    return value if value in choices else None


def _number(given: _Given, key: str) -> int | None:
    return _value(given, key, _natural)


def _value(given: _Given, key: str, read: Callable[[str], ValueT]) -> ValueT | None:
    text = _text(given, key)
    try:
        return None if text is None else read(text)
    except ValueError:
        return None


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _spot(text: str) -> Spot:
    file, _, row = text.partition(".")
    return Spot(_natural(file), _natural(row))
