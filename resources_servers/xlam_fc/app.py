# SPDX-License-Identifier: Apache-2.0
"""Function calling in the format of xLAM: a question, some tools, and the calls that answer it.

A response is worth 1 if it makes exactly the expected calls, in any order. No call is carried out: a tool of any name
says so, for agents that go on.
"""

import json
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, Field

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.xlam_fc.matching import Call, is_same_set


class XlamFcResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment; it has no settings of its own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


def _parsed(value: Any) -> Any:
    """What may be given as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is text, but not JSON: {error}") from None


class ExpectedCall(BaseModel):
    """A call that belongs to the right answer."""

    name: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_parsed)] = Field(default_factory=dict)


class XlamFcRunRequest(BaseRunRequest):
    """A question and the calls that answer it."""

    expected_answers: Annotated[list[ExpectedCall], BeforeValidator(_parsed), Field(min_length=1)]
    id: int | str | None = None


class XlamFcVerifyRequest(XlamFcRunRequest, BaseVerifyRequest):
    """A question and the response to it."""


class NotCarriedOut(BaseModel):
    """What every tool says."""

    output: str = "This call is noted. It is not carried out here."


class XlamFcResourcesServer(SimpleResourcesServer):
    """Tools of any name that do nothing, and a verifier of calls."""

    config: XlamFcResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The app with a route for whatever is called."""
        app = super().setup_webserver()
        app.post("/{tool_name}")(self.any_tool)
        return app

    async def any_tool(self, tool_name: str, body: dict[str, Any]) -> NotCarriedOut:
        """Note a call."""
        return NotCarriedOut()

    async def verify(self, body: XlamFcVerifyRequest) -> BaseVerifyResponse:
        """1 if the calls are the expected ones, no more and no fewer."""
        made = [Call(call.name, call.arguments) for call in grading.function_calls(body.response)]
        expected = [Call(call.name, call.arguments) for call in body.expected_answers]
        return BaseVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            reward=float(is_same_set(made, expected)),
        )


if __name__ == "__main__":
    XlamFcResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = XlamFcResourcesServer.run_webserver()
