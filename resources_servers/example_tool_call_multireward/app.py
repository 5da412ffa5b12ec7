# SPDX-License-Identifier: Apache-2.0
"""A reward made of parts: one tool call, scored for being right, for fitting its schema, and for its format.

Each part is worth 1; the reward is their sum. A trainer can also use the parts one by one, as `reward_components`.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)


class ExpectedCall(BaseModel):
    """The call that does what the task asks for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ExampleToolCallMultirewardVerifyRequest(BaseVerifyRequest):
    """A task and the call that solves it."""

    expected_call: ExpectedCall | None = None


class MadeCall(ExpectedCall):
    """A call that the model made; without arguments, if they are no JSON object."""


class ExampleToolCallMultirewardVerifyResponse(BaseMultiRewardVerifyResponse):
    """The reward, its parts, and the calls that it comes from."""

    correctness: float
    schema_valid: float
    format: float
    predicted_calls: list[MadeCall]


class ToolOutput(BaseModel):
    """What a tool says."""

    output: str


class ExampleToolCallMultirewardResourcesServer(SimpleResourcesServer):
    """Tools of any name that only say that they were called, and a verifier with three scores."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    def setup_webserver(self) -> FastAPI:
        """Return the app with a route for whatever is called."""
        app = super().setup_webserver()
        app.post("/{tool_name}")(self.any_tool)
        return app

    async def any_tool(self, tool_name: str, body: dict[str, Any]) -> ToolOutput:
        """Say that the tool was called."""
        return ToolOutput(output=f"{tool_name}: done")

    async def verify(self, body: ExampleToolCallMultirewardVerifyRequest) -> ExampleToolCallMultirewardVerifyResponse:
        """Return the sum of the parts."""
        calls = grading.function_calls(body.response)
        has_message = any(item.type == "message" for item in body.response.output)
        parts = {
            "correctness": float(any(_is_expected(call, body.expected_call) for call in calls)),
            "schema_valid": float(bool(calls) and _has_required(calls[0], body.responses_create_params.tools or ())),
            "format": float(len(calls) == 1 and not has_message),
        }
        return ExampleToolCallMultirewardVerifyResponse(
            **dict(body),
            **parts,
            reward=sum(parts.values()),
            reward_components=parts,
            predicted_calls=[MadeCall(name=call.name, arguments=call.arguments or {}) for call in calls],
        )


def _is_expected(call: grading.FunctionCall, expected: ExpectedCall | None) -> bool:
    """Return whether a call has the expected arguments, null where one is missing; others do not matter."""
    if expected is None or call.name != expected.name:
        return False
    made = call.arguments or {}
    return all(made.get(name) == value for name, value in expected.arguments.items())


def _has_required(call: grading.FunctionCall, tools: Sequence[Any]) -> bool:
    """Return whether a call has all arguments that its tool requires; a tool that was not offered requires none."""
    if call.arguments is None:
        return False
    plain = [tool if isinstance(tool, dict) else tool.model_dump() for tool in tools]
    offered = {tool.get("name"): tool.get("parameters") or {} for tool in plain}
    return all(name in call.arguments for name in offered.get(call.name, {}).get("required") or ())


if __name__ == "__main__":
    ExampleToolCallMultirewardResourcesServer.run_webserver()
