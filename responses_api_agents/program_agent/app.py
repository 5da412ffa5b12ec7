# SPDX-License-Identifier: Apache-2.0
"""An agent that runs an unmodified program: Codex, Claude Code, or anything with a command line.

One rollout is one run of the program, in its own workspace and sandbox. Its model calls are recorded at the model
server, so no program log has to be parsed. The resources server fills the workspace, offers its tools over MCP, and
scores what the program leaves behind. The config says which program to run, and how.
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
from responses_api_agents.program_agent.rollout_folder import RolloutFolder, make_rollout_folder, remove_stale_folders
from responses_api_agents.program_agent.run import (
    PROGRAM_FAULTS,
    ProgramFailure,
    ProgramOutcome,
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
    """A rollout played by a program."""

    program: dict[str, Any]
    """How the program ended: `exit_code`, `seconds`, the tail of its `stdout` and `stderr`, and its `fault`, if any."""
    model_calls: int
    """How many calls the model answered."""
    branches: list[dict[str, Any]]
    """Calls outside the main line: titles, small models, sub-agents, anything before a compaction."""
    artifacts: dict[str, str]
    """Files from the program's home folder, by path."""
    workspace_diff: str
    """The program's changes to the workspace."""


class ProgramAgent(EnvironmentAgent):
    """Runs a program for each rollout."""

    config: ProgramAgentConfig
    _slots: asyncio.Semaphore = PrivateAttr()
    _installation: "asyncio.Future[InstalledProgram] | None" = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        remove_stale_folders()
        self._slots = asyncio.Semaphore(self.config.max_parallel_programs)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Refuse: a program needs a task with a workspace."""
        raise HTTPException(
            501, f"agent {self.config.name!r} only plays whole rollouts.\nhint: post a row of its dataset to /run"
        )

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> ProgramAgentVerifyResponse:  # type: ignore[override]
        """Play one rollout: fill the workspace, run the program, and have the result verified."""
        task = task_fields(body)
        cookies = CookieJar(self._resources_cookies(request.cookies))
        async with self._slots:
            seeded = await self._seed_session(task, cookies)
            async with make_rollout_folder() as folder:
                async with record_calls(self, self.config.model_server.name, body) as recording:
                    outcome = await self._play(task, seeded, recording.endpoint, folder)
                    traces = await recording.fetch_traces()
                calls = read_calls(traces)
                row = _build_row(body.responses_create_params, outcome, calls)
                failure = find_failure(outcome, calls, traces)
                if failure is not None and failure.name in PROGRAM_FAULTS and calls:
                    row["program"]["fault"] = {"kind": failure.name, "message": failure.message}
                    if self.config.program_fault_reward is not None:
                        reward = self.config.program_fault_reward
                        return ProgramAgentVerifyResponse.model_validate({**task, **row, "reward": reward})
                elif failure is not None:
                    routing = {NG_FAILURE_CLASS_KEY: failure.name, FAILURE_MESSAGE_KEY: failure.message}
                    return ProgramAgentVerifyResponse.model_validate({**task, **row, "reward": 0.0, **routing})
                scored = await self._verify_response(
                    {**task, _WORKSPACE_KEY: outcome.change.model_dump()}, row["response"], cookies
                )
        verified = dict(scored)
        verified.pop(_WORKSPACE_KEY, None)
        return ProgramAgentVerifyResponse.model_validate({**verified, **row})

    async def _play(
        self, task: dict[str, Any], seeded: dict[str, Any], model: ModelEndpoint, folder: RolloutFolder
    ) -> ProgramOutcome:
        config = self.config
        before = folder.private / "before"
        given = seeded.get(_WORKSPACE_KEY) or task.get(_WORKSPACE_KEY) or {}
        try:
            installed = await self._install()
            await asyncio.to_thread(write_workspace, read_workspace(given), before)
        except ProgramInstallError as error:
            return ProgramOutcome(failure=ProgramFailure("install_failed", str(error)))
        except WorkspaceError as error:
            return ProgramOutcome(failure=ProgramFailure("workspace_failed", str(error)))
        tools = seeded.get(NEMO_GYM_MCP_METADATA_KEY) or {}
        upstream = Upstream(
            model_server=config.model_server.name,
            session_path=urlsplit(model.base_url).path.removesuffix("/v1"),
            session_key=model.api_key,
            model_name=model.model,
            tools_server=config.resources_server.name,
            tools_path=tools.get("url_path"),
            tools_headers=tools.get("headers") or {},
        )
        budget = Budget(config.max_model_calls, config.max_tokens)
        gateway = RolloutGateway(upstream, budget, self.server_client)
        program = ProgramSettings.for_task(config, installed, has_tools=upstream.tools_path is not None)
        return await run_program(program, gateway, before, folder, prompt=_read_prompt(task), model=model.model)

    async def _install(self) -> InstalledProgram:
        """Install the program unless it is already installed; concurrent rollouts wait for the same installation."""
        if self._installation is None:
            settings: Any = getattr(self.server_client, "global_config_dict", None) or {}
            self._installation = asyncio.ensure_future(install_program(self.config.install, settings, LOG.info))
        installation = self._installation
        try:
            return await asyncio.shield(installation)
        except ProgramInstallError:
            if self._installation is installation:
                self._installation = None  # the package registry may be back for the next rollout
            raise


def _build_row(
    params: NeMoGymResponseCreateParamsNonStreaming, outcome: ProgramOutcome, calls: list[RecordedCall]
) -> dict[str, Any]:
    """Return the fields of the row that the agent sets, whatever the verifier returns."""
    last = find_last_with_tools(calls) if calls else None
    if calls:
        given, response = write_response(calls, last)
        params = fill_prompt(params, given)
    else:
        response = make_empty_response("the program made no model call")
    return {
        "responses_create_params": params,
        "response": response,
        "program": outcome.describe(),
        "model_calls": len(calls),
        "branches": describe_branches(calls, last),
        "artifacts": outcome.artifacts,
        "workspace_diff": outcome.change.diff,
    }


def _read_prompt(task: dict[str, Any]) -> str:
    """Return all text of the task's input as one prompt: a program takes only one."""
    given = task["responses_create_params"]["input"]
    if isinstance(given, str):
        return given
    return "\n\n".join(filter(None, map(_read_text, given)))


def _read_text(item: dict[str, Any]) -> str:
    content = item.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content)


if __name__ == "__main__":
    ProgramAgent.run_webserver()
