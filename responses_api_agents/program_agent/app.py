# SPDX-License-Identifier: Apache-2.0
"""An agent that is a program: Codex, Claude Code, or anything with a command line, unchanged.

One rollout is one run of the program, in a workspace and a sandbox of its own. Its model calls are recorded where they
happen, at the model server, so that no log of the program has to be read. The resources server fills the workspace,
offers its tools over MCP, and scores what the program has left behind. Which program, and how it is called, is config.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from pydantic import PrivateAttr

from nemo_gym.adapters.call_recording import ModelEndpoint, record_calls
from nemo_gym.adapters.recorded_calls import (
    RecordedCall,
    describe_branches,
    fill_prompt,
    find_last_with_tools,
    make_empty_response,
    read_calls,
    write_response,
)
from nemo_gym.base_resources_server import NEMO_GYM_MCP_METADATA_KEY
from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.programs import InstalledProgram, ProgramInstallError, install_program
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY
from responses_api_agents.program_agent.gateway import Budget, RolloutGateway, Upstream
from responses_api_agents.program_agent.program_config import ProgramAgentConfig
from responses_api_agents.program_agent.rollout_folder import RolloutFolder, make_rollout_folder, remove_left_folders
from responses_api_agents.program_agent.run import (
    PlayedProgram,
    ProgramFailure,
    ProgramSettings,
    find_failure,
    run_program,
)
from responses_api_agents.program_agent.workspace import WorkspaceError, read_workspace, write_workspace
from responses_api_agents.simple_agent.app import (
    EnvironmentAgent,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
    task_fields,
)
from responses_api_agents.simple_agent.loop import CookieJar

LOG = logging.getLogger(__name__)

FAILURE_MESSAGE_KEY = "_ng_failure_message"
_WORKSPACE_KEY = "workspace"


class ProgramAgentVerifyResponse(SimpleAgentVerifyResponse):
    """A rollout that a program has played."""

    program: dict[str, Any]
    """How the program ended: `exit_code`, `seconds`, and the ends of what it printed."""
    model_calls: int
    """How many calls the model has answered."""
    branches: list[dict[str, Any]]
    """Calls beside the main line: titles, small models, sub-agents, what came before a compaction."""
    artifacts: dict[str, str]
    """Files of the program's home folder, by their paths."""
    workspace_diff: str
    """What the program has changed."""


class ProgramAgent(EnvironmentAgent):
    """Runs a program as a rollout."""

    config: ProgramAgentConfig
    _slots: asyncio.Semaphore = PrivateAttr()
    _installation: "asyncio.Future[InstalledProgram] | None" = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        remove_left_folders()
        self._slots = asyncio.Semaphore(self.config.max_parallel_programs)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Refuse: a program needs a workspace, and so a task."""
        raise HTTPException(
            501, f"agent {self.config.name!r} plays whole rollouts only.\nhint: post a row of its dataset to /run"
        )

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> ProgramAgentVerifyResponse:  # type: ignore[override]
        """Play one rollout: fill the workspace, run the program, have what it left verified."""
        task = task_fields(body)
        cookies = CookieJar(self._resources_cookies(request.cookies))
        async with self._slots:
            seeded = await self._seed_session(task, cookies)
            async with make_rollout_folder() as folder:
                async with record_calls(self, self.config.model_server.name, body) as recording:
                    played = await self._play(task, seeded, recording.endpoint, folder)
                    traces = await recording.fetch_traces()
                calls = read_calls(traces)
                failure = find_failure(played, calls, traces)
                row = self._build_row(body, task, played, calls)
                if failure is not None:
                    return _as_failure(row, failure)
                scored = await self._verify_response(
                    {**task, _WORKSPACE_KEY: played.change.model_dump()}, row["response"], cookies
                )
        verified = dict(scored)
        verified.pop(_WORKSPACE_KEY, None)
        return ProgramAgentVerifyResponse.model_validate({**verified, **_own_fields(row)})

    async def _play(
        self, task: dict[str, Any], seeded: dict[str, Any], model: ModelEndpoint, folder: RolloutFolder
    ) -> PlayedProgram:
        config = self.config
        before = folder.private / "before"
        given = seeded.get(_WORKSPACE_KEY) or task.get(_WORKSPACE_KEY) or {}
        try:
            installed = await self._install()
            await asyncio.to_thread(write_workspace, read_workspace(given), before)
        except ProgramInstallError as error:
            return PlayedProgram(failure=ProgramFailure("install_failed", str(error)))
        except WorkspaceError as error:
            return PlayedProgram(failure=ProgramFailure("workspace_failed", str(error)))
        tools = seeded.get(NEMO_GYM_MCP_METADATA_KEY) or {}
        upstream = Upstream(
            model_server=config.model_server.name,
            session_path=urlsplit(model.base_url).path.removesuffix("/v1"),
            model_name=model.model,
            tools_server=config.resources_server.name,
            tools_path=tools.get("url_path"),
            tools_headers=tools.get("headers") or {},
        )
        budget = Budget(config.max_model_calls, config.max_tokens)
        gateway = RolloutGateway(upstream, budget, self.server_client)
        program = ProgramSettings.of(config, installed, has_tools=upstream.tools_path is not None)
        return await run_program(program, gateway, before, folder, prompt=_read_prompt(task), model=model.model)

    async def _install(self) -> InstalledProgram:
        """Install the program unless it is there; rollouts that come meanwhile wait for the same installation."""
        if self._installation is None:
            settings: Any = getattr(self.server_client, "global_config_dict", None) or {}
            self._installation = asyncio.ensure_future(install_program(self.config.install, settings, LOG.info))
        installation = self._installation
        try:
            return await asyncio.shield(installation)
        except ProgramInstallError:
            if self._installation is installation:
                self._installation = None  # the registry may be back for the next rollout
            raise

    def _build_row(
        self, body: SimpleAgentRunRequest, task: dict[str, Any], played: PlayedProgram, calls: list[RecordedCall]
    ) -> dict[str, Any]:
        params = body.responses_create_params
        last = find_last_with_tools(calls) if calls else None
        if calls:
            given, response = write_response(calls, last)
            params = fill_prompt(params, given)
        else:
            response = make_empty_response("the program has asked its model nothing")
        return {
            **task,
            "responses_create_params": params,
            "response": response,
            "program": played.describe(),
            "model_calls": len(calls),
            "branches": describe_branches(calls, last),
            "artifacts": played.artifacts,
            "workspace_diff": played.change.diff,
        }


def _own_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return what is the agent's to say of a rollout, whatever the verifier returned."""
    names = ("responses_create_params", "response", "program", "model_calls", "branches", "artifacts", "workspace_diff")
    return {name: row[name] for name in names}


def _as_failure(row: dict[str, Any], failure: ProgramFailure) -> ProgramAgentVerifyResponse:
    """Return a rollout that has failed, with everything that is known of it."""
    routing = {NG_FAILURE_CLASS_KEY: failure.name, FAILURE_MESSAGE_KEY: failure.message}
    return ProgramAgentVerifyResponse.model_validate({**row, "reward": 0.0, **routing})


def _read_prompt(task: dict[str, Any]) -> str:
    """Return all that the task says, as one text: a program has one prompt."""
    said = task["responses_create_params"]["input"]
    if isinstance(said, str):
        return said
    return "\n\n".join(filter(None, map(_read_text, said)))


def _read_text(item: dict[str, Any]) -> str:
    content = item.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content)


if __name__ == "__main__":
    ProgramAgent.run_webserver()
