# SPDX-License-Identifier: Apache-2.0
"""The base class for agents written in Python: override `play`, with any client or framework.

    class MyAgent(CodedAgent):
        async def play(self, task, rollout):
            answer = await rollout.openai().chat.completions.create(**rollout.chat_params)
            return answer.choices[0].message.content

Every rollout has its own base URL at the model server, which records its calls in any dialect; the rollout's response
is built from them. The resources server starts the session, runs the tools and scores the response.
"""

import inspect
import traceback
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from fastapi import HTTPException, Request
from pydantic import Field

from nemo_gym.adapters.call_recording import ModelEndpoint, record_calls
from nemo_gym.adapters.playing import blame_model, play_in_own_thread, play_in_time
from nemo_gym.adapters.recorded_calls import (
    RecordedCall,
    describe_branches,
    fill_prompt,
    make_empty_response,
    read_calls,
    write_response,
)
from nemo_gym.base_resources_server import NEMO_GYM_MCP_METADATA_KEY
from nemo_gym.base_responses_api_agent import Body
from nemo_gym.errors import RolloutFailure
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.grading import last_assistant_text
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY
from responses_api_agents.coded_agent.rollout import AgentRollout
from responses_api_agents.simple_agent.app import (
    EnvironmentAgent,
    ModelAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
    task_fields,
)
from responses_api_agents.simple_agent.loop import CookieJar, Toolbox, ToolErrors

FAILURE_MESSAGE_KEY = "_ng_failure_message"
_TRACEBACK_CHARACTERS = 3000


class CodedAgentConfig(ModelAgentConfig):
    """Config of an agent written in Python."""

    rollout_timeout_s: float = Field(default=3600.0, gt=0)
    """A rollout that takes longer fails."""
    tool_errors: ToolErrors = "report"
    """A tool that crashes (status 500 or above): `report` it in the row, or `fail` the rollout at once."""
    run_once: bool = True
    """One server for all workers of a run: the agent calls the model server next to it."""


class CodedAgentVerifyResponse(SimpleAgentVerifyResponse):
    """A played rollout."""

    model_calls: int
    """How many calls the model answered."""
    branches: list[dict[str, Any]]
    """Calls outside the main line: other agents, small models, anything before a history was rewritten."""


class CodedAgent(EnvironmentAgent):
    """An agent whose `play` method plays a rollout."""

    config: CodedAgentConfig

    @abstractmethod
    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Play one rollout of `task`, a dataset row, with the model and the tools of `rollout`.

        Return the answer if it is not the model's last message, such as the argument of a final tool call. An exception
        fails the rollout, so do not raise for the model's mistakes: they are scored. A `play` that is not a coroutine
        function may block: it runs in its own thread.
        """

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Refuse: `play` needs a task."""
        raise HTTPException(
            501, f"agent {self.config.name!r} only plays whole rollouts.\nhint: post a row of its dataset to /run"
        )

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> CodedAgentVerifyResponse:  # type: ignore[override]
        """Play one rollout: seed the session, call `play`, and have the response verified."""
        task = task_fields(body)
        cookies = CookieJar(self._resources_cookies(request.cookies))
        seeded = await self._seed_session(task, cookies)
        answer = None
        error = None
        async with record_calls(self, self.config.model_server.name, body) as recording:
            rollout = self._open_rollout(body, seeded, recording.endpoint, cookies)
            try:
                answer = await self._play_in_time(body.model_dump(mode="json", exclude_unset=True), rollout)
            except Exception as raised:
                error = raised
            finally:
                await rollout.close()
            traces = await recording.fetch_traces()
        calls = read_calls(traces)
        if rollout.failure is not None and not isinstance(rollout.failure, RolloutFailure):
            raise rollout.failure  # the resources server could not be reached
        row = _build_row(body.responses_create_params, calls, answer)
        if failure := self._find_failure(rollout.failure or error, calls, traces):
            routing = {NG_FAILURE_CLASS_KEY: failure.kind, FAILURE_MESSAGE_KEY: failure.message}
            return CodedAgentVerifyResponse.model_validate({**task, **row, "reward": 0.0, **routing})
        rollout.note_crashes_on(row["response"])
        scored = await self._verify_response(task, row["response"], cookies)
        return CodedAgentVerifyResponse.model_validate({**dict(scored), **row})

    def _open_rollout(
        self, body: SimpleAgentRunRequest, seeded: Mapping[str, Any], model: ModelEndpoint, cookies: CookieJar
    ) -> AgentRollout:
        server = self.config.resources_server.name
        params = body.responses_create_params
        toolbox = Toolbox(self.server_client, server, params.tools, cookies, tool_errors=self.config.tool_errors)
        mcp = seeded.get(NEMO_GYM_MCP_METADATA_KEY)
        if not mcp:
            return AgentRollout(params, model, toolbox)
        settings: Any = self._global_settings()
        address = self.server_client._build_server_base_url(get_first_server_config_dict(settings, server))
        return AgentRollout(params, model, toolbox, mcp_url=f"{address}{mcp['url_path']}", mcp_headers=mcp["headers"])

    async def _play_in_time(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        is_async = inspect.iscoroutinefunction(self.play)
        play = self.play(task, rollout) if is_async else play_in_own_thread(self.play, task, rollout)
        answer: Any = await play_in_time(play, self.config.rollout_timeout_s, self.config.name)
        if answer is None or isinstance(answer, str):
            return answer
        raise RolloutFailure(
            "agent",
            f"`play` of {self.config.name!r} returned {type(answer).__name__}, which is not an answer.\n"
            "hint: return a string, or None if the model's last message is the answer",
        )

    def _find_failure(
        self, error: Exception | None, calls: Sequence[RecordedCall], traces: Sequence[Mapping[str, Any]]
    ) -> RolloutFailure | None:
        """Return why the rollout has no reward; None if there is something to verify.

        A failing model is not the agent's fault, whatever its code made of that.
        """
        if error is None and calls and traces[-1]["error"] is None:
            return None
        if error is None:
            error = RolloutFailure(
                "no_model_call",
                f"`play` of {self.config.name!r} returned, but none of its calls reached the model.\n"
                "hint: its client must use `rollout.base_url`; it may have read another URL from its own settings",
            )
        found = blame_model(error, traces)
        if isinstance(found, RolloutFailure):
            return found
        trace = "".join(traceback.format_exception(found))[-_TRACEBACK_CHARACTERS:]
        return RolloutFailure("agent", f"`play` of {self.config.name!r} raised an error:\n{trace}")


def _build_row(
    params: NeMoGymResponseCreateParamsNonStreaming, calls: Sequence[RecordedCall], answer: str | None
) -> dict[str, Any]:
    """Return the fields of the row that the agent sets, whatever the verifier returns."""
    if calls:
        given, response = write_response(calls)
        params = fill_prompt(params, given)
    else:
        response = make_empty_response("the agent made no model call")
    return {
        "responses_create_params": params,
        "response": _add_answer(response, answer),
        "model_calls": len(calls),
        "branches": describe_branches(calls),
    }


def _add_answer(response: NeMoGymResponse, answer: str | None) -> NeMoGymResponse:
    """Return the response with `answer` as its last message, unless the model's last message already says it."""
    last = response.output[-1] if response.output else None
    if answer is None or (last is not None and last.type == "message" and last_assistant_text(response) == answer):
        return response
    content = NeMoGymResponseOutputText(text=answer, annotations=[])
    message = NeMoGymResponseOutputMessage(id=f"msg_{uuid4().hex}", content=[content])
    return response.model_copy(update={"output": [*response.output, message]})
