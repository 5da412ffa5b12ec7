# SPDX-License-Identifier: Apache-2.0
"""An assistant at work: 27 tools on mail, calendar, website visits, tasks and customers, and a task that changes them.

Each session works in its own world. A response is right if its calls lead to the same end state as those of the task,
whatever the path; both are replayed on fresh worlds, so scoring needs no live session.
"""

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from fastapi import Body, FastAPI, HTTPException, Request
from pydantic import AfterValidator, BaseModel, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
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
from resources_servers.workplace_assistant import offices, toolkits
from resources_servers.workplace_assistant.toolkits import TOOLS
from resources_servers.workplace_assistant.world import World

LOG = logging.getLogger(__name__)
Office = Literal["harborlight", "workbench"]


class WorkplaceAssistantConfig(BaseResourcesServerConfig):
    """Config of the office."""

    world: Office | None = None
    """The office that all rows are played in; null: each in its own, by its `world` or the addresses in it."""
    world_dir: Path | None = None
    """Folder with the tables of the office `workbench`, as CSV files; null: where `fetch_workbench` puts them."""
    failing_ground_truth: Literal["refuse", "skip"] | None = None
    """What to do with a row whose own calls fail; null: skip them in `workbench`, as NeMo Gym does, else refuse the
    row."""


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

    id: int | str | None = None
    ground_truth: list[GroundTruthCall] = []
    world: Office | None = None


class WorkplaceAssistantVerifyRequest(BaseVerifyRequest):
    """A task and the calls that solve it."""

    id: int | str | None = None
    ground_truth: list[GroundTruthCall]
    category: str = ""
    """`workplace_assistant_` and the toolkit that the task is about."""
    environment_name: str = ""
    world: Office | None = None
    """The office that the task is about."""


class WorkplaceAssistantToolResponse(BaseModel):
    """What a tool gave back: data, or a text that says what went wrong."""

    output: Any


class WorkplaceAssistantResourcesServer(SimpleResourcesServer):
    """All tools behind one route, a world for each session, and a verifier that compares end states."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: WorkplaceAssistantConfig
    _worlds: SessionStore[World] = PrivateAttr(default_factory=SessionStore)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tools."""
        if self.config.world == offices.WORKBENCH or self.config.world_dir:
            offices.read_office(self._workbench_dir)  # tables that cannot be read are reported before any row comes
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
        expected = self._play_ground_truth(body)
        self._worlds[request.session[SESSION_ID_KEY]] = World(expected.company)
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
        expected = self._play_ground_truth(body)
        calls = grading.function_calls(body.response)
        reached, _ = toolkits.replay(
            ((self.normalize_tool_name(call.name), call.arguments) for call in calls if call.arguments is not None),
            expected.company,
        )
        return BaseVerifyResponse(**dict(body), reward=float(reached.is_like(expected)))

    @property
    def _workbench_dir(self) -> Path:
        return self.config.world_dir or offices.WORKBENCH_DIR

    def _play_ground_truth(self, row: WorkplaceAssistantSeedSessionRequest | WorkplaceAssistantVerifyRequest) -> World:
        """Return the world that a row asks for; refuse a row that does not fit the office it is played in."""
        arguments = [call.arguments for call in row.ground_truth]
        name = self.config.world or row.world or offices.name_office(arguments, self._workbench_dir.is_dir())
        try:
            office = offices.open_office(name, self._workbench_dir)
        except offices.OfficeError as error:
            raise HTTPException(422, f"task {row.id!r} is one for the office {name!r}: {error}") from error
        calls = [(call.name, orjson.loads(call.arguments)) for call in row.ground_truth]
        expected, failed = toolkits.replay(calls, office)
        if not failed:
            return expected
        as_usual = "skip" if name == offices.WORKBENCH else "refuse"
        if (self.config.failing_ground_truth or as_usual) == "refuse":
            raise HTTPException(
                422,
                f"task {row.id!r}: its ground truth cannot be played in the office {name!r}. {' '.join(failed)}\n"
                "hint: if the row belongs to another office, say so by `world` in the row or in this server's config, "
                "and name the folder of its tables by `world_dir`",
            )
        LOG.warning("task %r: its own solution has calls that fail, which are skipped: %s", row.id, failed)
        return expected


if __name__ == "__main__":
    WorkplaceAssistantResourcesServer.run_webserver()
