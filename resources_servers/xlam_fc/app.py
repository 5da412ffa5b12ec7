# SPDX-License-Identifier: Apache-2.0
"""Function calling in the format of xLAM: a question, some tools, and the calls that answer it.

A response is worth 1 if it makes exactly the expected calls, in any order. No call is executed: a tool of any name says
so, for agents that continue.
"""

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, Field

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
from resources_servers.xlam_fc.matching import Call, is_same_set


class ExpectedCall(BaseModel):
    """A call that belongs to the right answer."""

    name: str
    arguments: Annotated[dict[str, Any], BeforeValidator(grading.parse_json_text)] = Field(default_factory=dict)


class XlamFcVerifyRequest(BaseVerifyRequest):
    """A question and the calls that answer it."""

    expected_answers: Annotated[list[ExpectedCall], BeforeValidator(grading.parse_json_text), Field(min_length=1)]
    id: int | str | None = None


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

    async def verify(self, body: XlamFcVerifyRequest) -> BaseVerifyResponse:
        """Give 1 if the calls are the expected ones, no more and no fewer."""
        made = [Call(call.name, call.arguments) for call in grading.function_calls(body.response)]
        expected = [Call(call.name, call.arguments) for call in body.expected_answers]
        return BaseVerifyResponse(**dict(body), reward=float(is_same_set(made, expected)))


if __name__ == "__main__":
    XlamFcResourcesServer.run_webserver()
