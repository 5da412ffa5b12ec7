# SPDX-License-Identifier: Apache-2.0
"""Function calling in the format of xLAM: a question, some tools, and the calls that answer it.

A response is worth 1 if it makes the expected calls and no others, in any order. No call is executed: a tool of any
name says so, for agents that continue.
"""

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, Field

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
from resources_servers.xlam_fc.matching import Call, count_matches, parse_arguments


def _parse_expected_arguments(value: Any) -> Any:
    return parse_arguments(value) if isinstance(value, str) else value


class ExpectedCall(BaseModel):
    """A call that belongs to the right answer."""

    name: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_parse_expected_arguments)] = Field(default_factory=dict)
    """A dict, or JSON text of one; other text asks for no arguments."""


class XlamFcVerifyRequest(BaseVerifyRequest):
    """A question and the calls that answer it."""

    expected_answers: Annotated[list[ExpectedCall], BeforeValidator(grading.parse_json_text)] = Field(
        default_factory=list
    )
    """The calls, or JSON text of them; none if no tool may be called."""
    id: int | str | None = None


class MadeCall(BaseModel):
    """A call that the model made."""

    name: str
    arguments: Any


class XlamFcVerifyResponse(BaseVerifyResponse):
    """The reward, and the calls that it comes from."""

    num_expected: int
    num_predicted: int
    num_correct: int
    predicted_calls: list[MadeCall]


class NotCarriedOut(BaseModel):
    """What every tool returns."""

    output: str = "This call is noted. It is not carried out here."


class XlamFcResourcesServer(SimpleResourcesServer):
    """Tools of any name that do nothing, and a verifier of calls."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    def setup_webserver(self) -> FastAPI:
        """Return the app with a route for whatever is called."""
        app = super().setup_webserver()
        app.post("/{tool_name}")(self.any_tool)
        return app

    async def any_tool(self, tool_name: str, body: dict[str, Any]) -> NotCarriedOut:
        """Note a call."""
        return NotCarriedOut()

    async def verify(self, body: XlamFcVerifyRequest) -> XlamFcVerifyResponse:
        """Give 1 if the calls are the expected ones, no more and no fewer."""
        items = [item for item in body.response.output if item.type == "function_call"]
        made = [Call(item.name, parse_arguments(item.arguments)) for item in items]
        expected = [Call(call.name, call.arguments) for call in body.expected_answers]
        correct = count_matches(made, expected)
        return XlamFcVerifyResponse(
            **dict(body),
            num_expected=len(expected),
            num_predicted=len(made),
            num_correct=correct,
            predicted_calls=[MadeCall(name=call.name, arguments=call.arguments) for call in made],
            reward=float(correct == len(expected) == len(made)),
        )


if __name__ == "__main__":
    XlamFcResourcesServer.run_webserver()
