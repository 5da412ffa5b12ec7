# SPDX-License-Identifier: Apache-2.0
"""An environment with state: every rollout has its own counter, which its tools change and read.

The session cookie identifies the counter of a call. Counters live in this process and expire when unused, so a
response cannot be scored again later, and the server runs with one worker.
"""

from fastapi import FastAPI, Request
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.session_store import SessionStore


class ExampleSessionStateMgmtSeedSessionRequest(BaseSeedSessionRequest):
    """Where the counter of a session begins."""

    initial_count: int


class IncrementCounterRequest(BaseModel):
    """Arguments of `increment_counter`."""

    count: int


class IncrementCounterResponse(BaseModel):
    """Confirms that the counter was changed."""

    success: bool


class GetCounterValueResponse(BaseModel):
    """The value of the counter."""

    count: int


class ExampleSessionStateMgmtVerifyRequest(BaseVerifyRequest):
    """A task and the response to it."""

    expected_count: int


class ExampleSessionStateMgmtResourcesServer(SimpleResourcesServer):
    """Two tools for a counter, and a verifier that checks its final value."""

    REVERIFY_MODE = ReverifyMode.UNSUPPORTED
    _counters: SessionStore[int] = PrivateAttr(default_factory=SessionStore)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tools."""
        app = super().setup_webserver()
        app.post("/increment_counter")(self.increment_counter)
        app.post("/get_counter_value")(self.get_counter_value)
        return app

    async def seed_session(
        self, request: Request, body: ExampleSessionStateMgmtSeedSessionRequest
    ) -> BaseSeedSessionResponse:
        """Set up the counter of a session; one that is there already keeps its count."""
        self._counters.get_or_create(request.session[SESSION_ID_KEY], lambda: body.initial_count)
        return BaseSeedSessionResponse()

    async def increment_counter(self, request: Request, body: IncrementCounterRequest) -> IncrementCounterResponse:
        """Add to the counter, which is 0 in a session that was never seeded."""
        session_id = request.session[SESSION_ID_KEY]
        self._counters[session_id] = self._counters.get_or_create(session_id, int) + body.count
        return IncrementCounterResponse(success=True)

    async def get_counter_value(self, request: Request) -> GetCounterValueResponse:
        """Get what the counter shows."""
        return GetCounterValueResponse(count=self._counters.get_or_create(request.session[SESSION_ID_KEY], int))

    async def verify(self, request: Request, body: ExampleSessionStateMgmtVerifyRequest) -> BaseVerifyResponse:
        """Compare the counter with the expected count."""
        count = self._counters.of_request(request)
        return BaseVerifyResponse(**dict(body), reward=float(count == body.expected_count))


if __name__ == "__main__":
    ExampleSessionStateMgmtResourcesServer.run_webserver()
