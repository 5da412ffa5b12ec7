# SPDX-License-Identifier: Apache-2.0

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class TallyCounterConfig(BaseResourcesServerConfig):
    step_limit: int = 100


class TallySeedRequest(BaseSeedSessionRequest):
    initial: int


class AddRequest(BaseModel):
    amount: int


class AddResponse(BaseModel):
    ok: bool


class ReadResponse(BaseModel):
    value: int


class TallyVerifyRequest(BaseVerifyRequest):
    expected: int


class TallyVerifyResponse(BaseVerifyResponse):
    expected: int
    found: int


class TallyCounterServer(SimpleResourcesServer):
    config: TallyCounterConfig
    session_id_to_tally: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        app.post("/add")(self.add)
        app.post("/read")(self.read)

        return app

    async def seed_session(self, request: Request, body: TallySeedRequest) -> BaseSeedSessionResponse:
        self.session_id_to_tally.setdefault(request.session[SESSION_ID_KEY], body.initial)
        return BaseSeedSessionResponse()

    async def add(self, request: Request, body: AddRequest) -> AddResponse:
        session_id = request.session[SESSION_ID_KEY]
        if abs(body.amount) > self.config.step_limit:
            return AddResponse(ok=False)
        self.session_id_to_tally[session_id] += body.amount
        return AddResponse(ok=True)

    async def read(self, request: Request) -> ReadResponse:
        return ReadResponse(value=self.session_id_to_tally.get(request.session[SESSION_ID_KEY], 0))

    async def verify(self, request: Request, body: TallyVerifyRequest) -> TallyVerifyResponse:
        found = self.session_id_to_tally.pop(request.session[SESSION_ID_KEY], None)
        reward = float(found == body.expected)
        return TallyVerifyResponse(**body.model_dump(), found=-1 if found is None else found, reward=reward)


if __name__ == "__main__":
    TallyCounterServer.run_webserver()
