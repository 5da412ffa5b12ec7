# SPDX-License-Identifier: Apache-2.0
"""The tools of the office by toolkit: `TOOLS` has all of them, `run` calls one by its name, `replay` several."""

from collections.abc import Iterable, Mapping
from typing import Any

from resources_servers.workplace_assistant.company import Company
from resources_servers.workplace_assistant.toolkits import (
    analytics as analytics,
    calendar as calendar,
    company_directory as company_directory,
    customer_relationship_manager as customer_relationship_manager,
    email as email,
    project_management as project_management,
    tool,
)
from resources_servers.workplace_assistant.toolkits.tool import Tool, ToolError as ToolError
from resources_servers.workplace_assistant.world import World

_ORDER = "company_directory email calendar analytics project_management customer_relationship_manager"
TOOLKITS: Mapping[str, list[Tool]] = {name: tool.TOOLKITS[name] for name in _ORDER.split()}
TOOLS: Mapping[str, Tool] = {one.name: one for tools in TOOLKITS.values() for one in tools}


def run(world: World, name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what a tool gives back: data, or a text that says what is wrong. A tool that fails changes nothing."""
    try:
        return call(world, name, arguments)
    except ToolError as error:
        return str(error)


def call(world: World, name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what a tool gives back; ToolError if it cannot do its work."""
    if name not in TOOLS:
        raise ToolError(f"Tool {name!r} does not exist. Available tools: {', '.join(TOOLS)}.")
    return TOOLS[name](world, arguments)


def replay(calls: Iterable[tuple[str, Mapping[str, Any]]], office: Company | None = None) -> tuple[World, list[str]]:
    """Make `calls` in a fresh world of an office; return it, and which calls failed and why. Calls that only read are
    left out."""
    world = World(office)
    failed = list[str]()
    for name, arguments in calls:
        if name in TOOLS and not TOOLS[name].writes:
            continue
        try:
            call(world, name, arguments)
        except ToolError as error:
            failed.append(f"{name}: {error}")
    return world, failed
