# SPDX-License-Identifier: Apache-2.0
"""What tasks are made with: a script that plays the calls of a task in a world, days, and people to draw."""

from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from resources_servers.workplace_assistant import toolkits, words
from resources_servers.workplace_assistant.company import Draw
from resources_servers.workplace_assistant.world import World

FIND = "company_directory_find_email_address"
PM = "project_management"
CRM = "customer_relationship_manager"
MOST_CALLS = 5
"""The agent has six turns, and the last is for its answer."""


class Unclear(Exception):
    """The drawn task cannot be asked for in a way that has one answer."""


class Day(NamedTuple):
    """A day, and how one speaks of it."""

    date: date
    spoken: str


DAYS = (
    Day(date(2023, 12, 1), "tomorrow"),
    Day(date(2023, 12, 4), "next Monday"),
    Day(date(2023, 12, 6), "on Wednesday, December 6"),
    Day(date(2023, 12, 12), "on December 12"),
    Day(date(2023, 12, 19), "on 2023-12-19"),
)


class Script:
    """Plays calls in a world and remembers them."""

    def __init__(self) -> None:
        self.world = World()
        self.calls: list[tuple[str, dict[str, str]]] = []

    def __call__(self, tool: str, /, **arguments: str) -> Any:
        if len(self.calls) == MOST_CALLS:
            raise Unclear
        try:
            output = toolkits.call(self.world, tool, arguments)
        except toolkits.ToolError as error:
            raise Unclear from error
        self.calls.append((tool, arguments))
        return output

    def address(self, name: str) -> str:
        """Look a colleague up."""
        (address,) = self(FIND, name=name)
        return str(address)


Make = Callable[[Draw, Script], str]


def draw_colleague(draw: Draw) -> str:
    """Return the first name of a colleague."""
    return draw.pick(words.COLLEAGUES).partition(" ")[0]


def draw_two_colleagues(draw: Draw) -> tuple[str, str]:
    """Return the first names of two colleagues."""
    one, other = draw.some(words.COLLEAGUES, 2)
    return one.partition(" ")[0], other.partition(" ")[0]


def require_one(rows: list[Any]) -> dict[str, str]:
    """Return the one row that was found."""
    if len(rows) != 1:
        raise Unclear
    return dict(rows[0])


def draw_customer(draw: Draw, do: Script) -> dict[str, str]:
    """Return a customer whose name is unique."""
    name = draw.pick(do.world.customers)["customer_name"]
    return require_one(do(f"{CRM}_search_customers", customer_name=name)["customers"])
