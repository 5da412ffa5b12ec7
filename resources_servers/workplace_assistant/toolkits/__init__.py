# SPDX-License-Identifier: Apache-2.0
"""The tools of the office by toolkit: `TOOLS` has all of them, `run` calls one by its name, `replay` several."""

from collections.abc import Iterable, Mapping
from typing import Any

from resources_servers.workplace_assistant.toolkits import (
    analytics,
    calendar,
    company_directory,
    customer_relationship_manager,
    email,
    project_management,
)
from resources_servers.workplace_assistant.toolkits.tool import Tool
from resources_servers.workplace_assistant.toolkits.tool import ToolError as ToolError
from resources_servers.workplace_assistant.world import World

TOOLKITS: Mapping[str, tuple[Tool, ...]] = {
    "company_directory": company_directory.TOOLS,
    "email": email.TOOLS,
    "calendar": calendar.TOOLS,
    "analytics": analytics.TOOLS,
    "project_management": project_management.TOOLS,
    "customer_relationship_manager": customer_relationship_manager.TOOLS,
}
TOOLS: Mapping[str, Tool] = {tool.name: tool for tools in TOOLKITS.values() for tool in tools}


def run(world: World, name: str, arguments: Mapping[str, Any]) -> Any:
    """What a tool gives back, be it data or a text that says what is wrong; a tool that fails changes nothing."""
    try:
        return call(world, name, arguments)
    except ToolError as error:
        return str(error)


def call(world: World, name: str, arguments: Mapping[str, Any]) -> Any:
    """What a tool gives back; ToolError if it cannot do its work."""
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolError(f"Tool {name!r} does not exist. Available tools: {', '.join(TOOLS)}.")
    return tool(world, arguments)


def replay(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[World, list[str]]:
    """Make `calls` in a fresh world; return it, and what the calls that failed were told. Calls that only read are
    left out."""
    world, failed = World(), list[str]()
    for name, arguments in calls:
        if name in TOOLS and not TOOLS[name].writes:
            continue
        try:
            call(world, name, arguments)
        except ToolError as error:
            failed.append(str(error))
    return world, failed
