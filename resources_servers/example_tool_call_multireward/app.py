# SPDX-License-Identifier: Apache-2.0
"""A reward made of parts: one tool call, scored for being right, for fitting its schema, and for its format.

Each part is worth 1; the reward is their sum. A trainer can also use the parts one by one, as `reward_components`.
"""

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
from resources_servers.example_tool_call_multireward.schema import all_calls_fit


class ExpectedCall(BaseModel):
    """The call that does what the task asks for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ExampleToolCallMultirewardVerifyRequest(BaseVerifyRequest):
    """A task and the call that solves it."""

    expected_call: ExpectedCall


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

    async def verify(self, body: ExampleToolCallMultirewardVerifyRequest) -> BaseMultiRewardVerifyResponse:
        """Return the sum of the parts."""
        calls, expected = grading.function_calls(body.response), body.expected_call
        first = calls[0] if calls else None
        parts = {
            "correctness": float(first is not None and first[:2] == (expected.name, expected.arguments)),
            "schema_valid": float(all_calls_fit(calls, body.responses_create_params.tools or ())),
            "format": float(len(calls) == 1 and calls[0].arguments is not None),
        }
        return BaseMultiRewardVerifyResponse(**dict(body), reward=sum(parts.values()), reward_components=parts)


if __name__ == "__main__":
    ExampleToolCallMultirewardResourcesServer.run_webserver()
