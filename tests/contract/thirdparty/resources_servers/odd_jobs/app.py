# SPDX-License-Identifier: Apache-2.0
import math

from fastapi import FastAPI, Request, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError, judge_failsafe
from nemo_gym.server_utils import SESSION_ID_KEY


class Nudge(BaseModel):
    by: int = 1


class OddJobsServer(SimpleResourcesServer):
    """Builds an app of its own, keeps state in the cookie itself, talks over a socket, scores without await."""

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = FastAPI(title="odd jobs")
        self.setup_session_middleware(app)
        self.setup_session_middleware(app)
        app.add_middleware(CORSMiddleware, allow_origins=["*"])
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(judge_failsafe(self.verify))
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.post("/nudge")(self.nudge)
        app.websocket("/talk")(self.talk)
        return app

    async def nudge(self, body: Nudge, request: Request) -> dict[str, int]:
        request.session["nudges"] = request.session.get("nudges", 0) + body.by
        return {"nudges": request.session["nudges"]}

    async def talk(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_json({"known": SESSION_ID_KEY in websocket.session})
        await websocket.close()

    def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        text = body.response.output_text
        if text == "?":
            raise JudgeError("cannot say")
        return BaseVerifyResponse(**body.model_dump(), reward=math.tanh(len(text)))


class GuardedJobsServer(OddJobsServer):
    def setup_webserver(self) -> FastAPI:
        return SimpleResourcesServer.setup_webserver(self)

    @judge_failsafe
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return OddJobsServer.verify(self, body)


if __name__ == "__main__":
    OddJobsServer.run_webserver()
