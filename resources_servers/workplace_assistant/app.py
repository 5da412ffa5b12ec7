# SPDX-License-Identifier: Apache-2.0
"""An assistant at work: 27 tools on mail, calendar, website visits, tasks and customers, and a task that changes them.

Each session works in its own world. A response is right if its calls lead to the same end state as those of the task,
whatever the path; both are replayed on fresh worlds, so scoring needs no live session.
"""

import logging
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, Request
from pydantic import AfterValidator, BaseModel, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.mcp_auto_exposure import MCPCatchall, MCPTool
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.session_store import SessionStore
from resources_servers.workplace_assistant import toolkits
from resources_servers.workplace_assistant.toolkits import TOOLS
from resources_servers.workplace_assistant.world import World

LOG = logging.getLogger(__name__)


def _a_tool(name: str) -> str:
    if name not in TOOLS:
        raise ValueError(f"there is no tool {name!r}; the tools are {', '.join(TOOLS)}")
    return name


def _an_object(text: str) -> str:
    if not isinstance(orjson.loads(text), dict):
        raise ValueError("the arguments of a call are a JSON object, written as a text")
    return text


class GroundTruthCall(BaseModel):
    """A call that the task needs."""

    name: Annotated[str, AfterValidator(_a_tool)]
    arguments: Annotated[str, AfterValidator(_an_object)]
    """A JSON object, as a text."""


class WorkplaceAssistantSeedSessionRequest(BaseSeedSessionRequest):
    """A task; one that cannot be scored is refused before a model works on it."""

    ground_truth: list[GroundTruthCall] = []


class WorkplaceAssistantVerifyRequest(BaseVerifyRequest):
    """A task and the calls that solve it."""

    id: int | str | None = None
    ground_truth: list[GroundTruthCall]
    category: str = ""
    """`workplace_assistant_` and the toolkit that the task is about."""
    environment_name: str = ""


class WorkplaceAssistantToolResponse(BaseModel):
    """What a tool gave back: data, or a text that says what went wrong."""

    output: Any


class WorkplaceAssistantResourcesServer(SimpleResourcesServer):
    """All tools behind one route, a world for each session, and a verifier that compares end states."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    _worlds: SessionStore[World] = PrivateAttr(default_factory=SessionStore)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tools."""
        app = super().setup_webserver()
        app.post("/{tool}")(self.call_tool)
        return app

    def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
        """Return the tools behind the one route."""
        assert catchall is not None
        return [catchall.tool(tool.name, tool.description, tool.schema["parameters"]) for tool in TOOLS.values()]

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: WorkplaceAssistantSeedSessionRequest
    ) -> BaseSeedSessionResponse:
        """Begin a session with a fresh world."""
        self._worlds[request.session[SESSION_ID_KEY]] = World()
        return BaseSeedSessionResponse()

    async def call_tool(
        self, tool: str, request: Request, body: dict[str, Any] = Body(default_factory=dict)
    ) -> WorkplaceAssistantToolResponse:
        """Run a tool in the world of the session; errors are returned as text."""
        return WorkplaceAssistantToolResponse(output=toolkits.run(self._worlds.of_request(request), tool, body))

    async def verify(  # type: ignore[override]
        self,
        body: WorkplaceAssistantVerifyRequest,
        request: Request = None,  # type: ignore[assignment]
    ) -> BaseVerifyResponse:
        """Give 1 if the response leads to the end state that the task asks for, and end the session."""
        if request is not None:
            self._worlds.pop(request.session[SESSION_ID_KEY])
        expected, failed = toolkits.replay((call.name, orjson.loads(call.arguments)) for call in body.ground_truth)
        if failed:
            LOG.warning("task %r: its own solution has calls that fail, which are skipped: %s", body.id, failed)
        calls = grading.function_calls(body.response)
        reached, _ = toolkits.replay(
            (self.normalize_tool_name(call.name), call.arguments) for call in calls if call.arguments is not None
        )
        return BaseVerifyResponse(**dict(body), reward=float(reached.is_like(expected)))


if __name__ == "__main__":
    WorkplaceAssistantResourcesServer.run_webserver()
