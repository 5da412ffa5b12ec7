# SPDX-License-Identifier: Apache-2.0
"""How a reward is made up of parts: one tool call, scored for being right, for fitting its schema, and for its form.

Each part is worth 1; the reward is their sum. A trainer can also use the parts one by one, as `reward_components`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, Field

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.example_tool_call_multireward.schema import fits


class ExampleToolCallMultirewardResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment; it has no settings of its own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class ExpectedCall(BaseModel):
    """The call that does what the task asks for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ExampleToolCallMultirewardRunRequest(BaseRunRequest):
    """A task and the call that solves it."""

    expected_call: ExpectedCall


class ExampleToolCallMultirewardVerifyRequest(ExampleToolCallMultirewardRunRequest, BaseVerifyRequest):
    """A task and the response to it."""


class ToolOutput(BaseModel):
    """What a tool says."""

    output: str


class ExampleToolCallMultirewardResourcesServer(SimpleResourcesServer):
    """Tools of any name that only say that they were called, and a verifier with three opinions."""

    config: ExampleToolCallMultirewardResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The app with a route for whatever is called."""
        app = super().setup_webserver()
        app.post("/{tool_name}")(self.any_tool)
        return app

    async def any_tool(self, tool_name: str, body: dict[str, Any]) -> ToolOutput:
        """Say that the tool was called."""
        return ToolOutput(output=f"{tool_name}: done")

    async def verify(self, body: ExampleToolCallMultirewardVerifyRequest) -> BaseMultiRewardVerifyResponse:
        """The sum of the parts."""
        calls = grading.function_calls(body.response)
        parts = {
            "correctness": float(_is_expected(calls, body.expected_call)),
            "schema_valid": float(_fit_their_schemas(calls, body.responses_create_params.tools or ())),
            "format": float(_is_one_readable_call(calls)),
        }
        return BaseMultiRewardVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            reward=sum(parts.values()),
            reward_components=parts,
        )


def _is_expected(calls: Sequence[grading.FunctionCall], expected: ExpectedCall) -> bool:
    """Whether the first call is the one that was expected."""
    return bool(calls) and calls[0].name == expected.name and calls[0].arguments == expected.arguments


def _fit_their_schemas(calls: Sequence[grading.FunctionCall], tools: Sequence[Any]) -> bool:
    """Whether there are calls, all of tools that were offered, with arguments of the right types."""
    offered = {tool.name: tool.parameters for tool in (_as_function(one) for one in tools) if tool is not None}
    return bool(calls) and all(
        call.name in offered and call.arguments is not None and fits(call.arguments, offered[call.name])
        for call in calls
    )


def _is_one_readable_call(calls: Sequence[grading.FunctionCall]) -> bool:
    return len(calls) == 1 and calls[0].arguments is not None


class _Function(BaseModel):
    name: str
    parameters: dict[str, Any] | None = None


def _as_function(tool: Any) -> _Function | None:
    """A tool that is a function; tools of other kinds are none."""
    given = tool if isinstance(tool, dict) else tool.model_dump()
    return _Function(**given) if given.get("type") == "function" else None


if __name__ == "__main__":
    ExampleToolCallMultirewardResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = ExampleToolCallMultirewardResourcesServer.run_webserver()
