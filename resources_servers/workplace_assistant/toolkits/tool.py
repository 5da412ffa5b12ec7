# SPDX-License-Identifier: Apache-2.0
"""What all toolkits share: a tool with its schema, its arguments checked, dates, words and pages of a search.

Arguments come from a model. They are texts, or numbers that are taken as texts; anything else is refused in words that
the model can act on.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from resources_servers.workplace_assistant.world import Row, Rows, World, find_position

ID_DIGITS = 8
PAGE_SIZE = 5
LARGEST_PAGE = 1000
PAGING = {"page": "Number of the page, from 1.", "page_size": f"Results per page; {PAGE_SIZE} if not given."}
_INTEGERS = frozenset(PAGING)
_CALENDARS = ("%Y/%m/%d", "%m/%d/%Y", "%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I %p")
ToolFunction = TypeVar("ToolFunction", bound=Callable[..., Any])


class ToolError(Exception):
    """A tool could not do what it was asked to; the text is for the model."""


@dataclass(frozen=True)
class Tool:
    """A function on the world that a model can call by name."""

    name: str
    description: str
    function: Callable[..., Any]
    arguments: Mapping[str, str]
    """What each argument is."""
    required: tuple[str, ...]
    writes: bool
    """Whether it can change the world."""

    def __call__(self, world: World, arguments: Mapping[str, Any]) -> Any:
        """Run it; arguments that are null are as if not given."""
        unknown = [name for name in arguments if name not in self.arguments]
        if unknown:
            raise ToolError(f"{self.name} has no argument {unknown[0]!r}. Its arguments: {', '.join(self.arguments)}.")
        given = {name: _check_argument(name, value) for name, value in arguments.items() if value is not None}
        missing = [name for name in self.required if not given.get(name)]
        if missing:
            raise ToolError(f"{_say_name(missing[0])} not provided.")
        return self.function(world, **given)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as the Responses API describes it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": {
                "type": "object",
                "properties": {
                    name: {"type": "integer" if name in _INTEGERS else "string", "description": text}
                    for name, text in self.arguments.items()
                },
                "required": list(self.required),
                "additionalProperties": False,
            },
            "strict": False,
        }


TOOLKITS: dict[str, list[Tool]] = {}
"""The tools of every module of this package, by its name."""


def reads(**about: str) -> Callable[[ToolFunction], ToolFunction]:
    """Make a function on a world a tool that changes nothing; `about` describes the function's other parameters.

    The docstring of the function is what the model is told of the tool.
    """
    return partial(_add_tool, about=about, writes=False)


def writes(**about: str) -> Callable[[ToolFunction], ToolFunction]:
    """Make a function on a world a tool that can change it, as `reads` does."""
    return partial(_add_tool, about=about, writes=True)


def _add_tool(function: ToolFunction, *, about: Mapping[str, str], writes: bool) -> ToolFunction:
    toolkit = function.__module__.rpartition(".")[2]
    name = f"{toolkit}_{function.__name__}"
    _, *parameters = inspect.signature(function).parameters.values()
    if [parameter.name for parameter in parameters] != list(about):
        raise TypeError(f"{name}: describes {list(about)}, but its function takes {parameters}")
    required = tuple(one.name for one in parameters if one.default is inspect.Parameter.empty)
    tool = Tool(name, inspect.getdoc(function) or "", function, about, required, writes)
    TOOLKITS.setdefault(toolkit, []).append(tool)
    return function


# --- arguments --------------------------------------------------------------------------------------------------------


def _check_argument(name: str, value: Any) -> Any:
    if name in _INTEGERS:
        return _read_positive(name, value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ToolError(f"{_say_name(name)} must be a string.")
    try:
        text = str(value)
        text.encode()
    except ValueError:  # an integer of thousands of digits, or half of a surrogate pair: neither can be written
        raise ToolError(f"{_say_name(name)} cannot be written as a text.") from None
    return text


def _read_positive(name: str, value: Any) -> int:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise ToolError(f"{_say_name(name)} must be a whole number from 1.")
    return number


def _say_name(name: str) -> str:
    words = name.replace("_", " ").removesuffix(" id")
    return f"{words.capitalize()} ID" if name.endswith("_id") else words.capitalize()


def read_mail_address(value: str, what: str) -> str:
    """Return an address, in lower case as addresses are kept."""
    if "@" not in value or "." not in value:
        raise ToolError(f"Invalid {what} email address.")
    return value.lower()


def require_moment(value: str) -> str:
    """Return a text that says when something begins, as it was written."""
    for time in _CLOCKS:
        for day in _CALENDARS:
            try:
                datetime.strptime(value.strip(), f"{day}{time}")
                return value
            except ValueError:
                pass
    _parse_moment(value, "event_start")
    return value


def require_minutes(value: str) -> str:
    """Return a positive whole number, as it was written."""
    try:
        is_positive = int(value) > 0
    except ValueError:
        is_positive = False
    if not is_positive:
        raise ToolError("Duration must be a positive whole number of minutes, as in '30'.")
    return value


def require_choice(value: str, choices: Sequence[str], what: str) -> str:
    """Return a value of a fixed set."""
    if value not in choices:
        raise ToolError(f"{what} not valid. Please choose from: {', '.join(map(repr, choices))}.")
    return value


# --- rows -------------------------------------------------------------------------------------------------------------


def find_row(rows: Rows, key: str, value: str, what: str) -> int:
    """Return where the row with this id is."""
    place = find_position(rows, key, value)
    if place is None:
        raise ToolError(f"{what} not found.")
    return place


def get_field(row: Row, field: str) -> dict[str, str]:
    """Return one column of a row."""
    if field not in row:
        raise ToolError(f"Column not found. Please choose from: {', '.join(map(repr, row))}.")
    return {field: row[field]}


def make_id(rows: Rows, key: str, digits: int = ID_DIGITS) -> str:
    """Return the highest id, in the order of texts, and one more."""
    highest = max((row[key] for row in rows), default="-1")
    try:
        return str(int(highest) + 1).zfill(digits)
    except ValueError:  # ids of tasks and customers can be changed to any text
        raise ToolError(f"There is no next ID after {highest[:40]!r}.") from None


# --- searching --------------------------------------------------------------------------------------------------------


def match_words(query: str) -> Callable[[Iterable[str]], bool]:
    """Return whether texts contain all words of `query` between them, in any case."""
    wanted = query.lower().split()

    def matches(texts: Iterable[str]) -> bool:
        text = "\n".join(texts).lower()
        return all(word in text for word in wanted)

    return matches


def parse_earliest(text: str | None, name: str) -> str:
    """Return a lower bound as tables write times; a day begins at midnight."""
    return "" if not text else str(_parse_moment(text, name)[0])


def parse_latest(text: str | None, name: str) -> str:
    """Return an upper bound as tables write times; a day counts to its end."""
    if not text:
        return "9999"
    moment, is_day = _parse_moment(text, name)
    return f"{moment.date()} 23:59:59" if is_day else str(moment)


def parse_earliest_day(text: str | None, name: str) -> str:
    """Return a lower bound as tables write days."""
    return parse_earliest(text, name)[:10]


def parse_latest_day(text: str | None, name: str) -> str:
    """Return an upper bound as tables write days."""
    return parse_latest(text, name)[:10]


def _parse_moment(text: str, name: str) -> tuple[datetime, bool]:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ToolError(f"{_say_name(name)} {text[:40]!r} is not a date like '2023-11-30'.") from None
    return moment.replace(tzinfo=None, microsecond=0), len(text.strip()) <= len("2023-11-30")


def take_page(rows: Sequence[Row], what: str, page: int, page_size: int) -> dict[str, Any]:
    """Return one page of a search, and how many there are."""
    if not rows:
        raise ToolError(f"No {what} found.")
    size = min(page_size, LARGEST_PAGE)
    start = (page - 1) * size
    return {
        what: list(rows[start : start + size]),
        "pagination": {
            f"total_{what}": len(rows),
            "page": page,
            "page_size": size,
            "total_pages": -(-len(rows) // size),
        },
    }
