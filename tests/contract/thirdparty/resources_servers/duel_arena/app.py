# SPDX-License-Identifier: Apache-2.0
import random
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import SESSION_ID_KEY, get_response_json, raise_for_status


class Opponent(BaseModel):
    model: ModelServerRef
    strength: int = 1


class DuelArenaConfig(BaseResourcesServerConfig):
    opponents: dict[str, Opponent] = Field(default_factory=dict)
    scoreboard: ResourcesServerRef | None = None
    seed: int = 7


class DuelSeedRequest(BaseSeedSessionRequest):
    opponent: str
    task_idx: int | None = None


class DuelSeedResponse(BaseSeedSessionResponse):
    duel_id: str
    obs: list[dict[str, Any]]


class Move(BaseModel):
    duel_id: str
    strike: int = Field(ge=0, le=9)


class Outcome(BaseModel):
    reply: str
    done: bool


class DuelArenaServer(SimpleResourcesServer):
    config: DuelArenaConfig
    duels: dict[str, dict[str, Any]] = {}
    rng: random.Random = Field(default=None, exclude=True)

    def model_post_init(self, context: Any, /) -> None:
        self.rng = random.Random(self.config.seed)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/strike", response_model=Outcome)(self.strike)
        app.add_api_route("/close", self.close, methods=["POST"])
        return app

    async def seed_session(self, response: Response, body: DuelSeedRequest, request: Request) -> DuelSeedResponse:
        if body.opponent not in self.config.opponents:
            raise HTTPException(400, f"unknown opponent {body.opponent}")
        duel_id = str(uuid4())
        self.duels[duel_id] = {"session": request.session[SESSION_ID_KEY], "opponent": body.opponent, "hits": 0}
        response.set_cookie("last_duel", duel_id)
        response.headers["x-duel"] = duel_id
        return DuelSeedResponse(duel_id=duel_id, obs=[{"role": "user", "content": "en garde"}])

    async def strike(self, body: Move, request: Request) -> dict[str, Any]:
        duel = self.duels[body.duel_id]
        opponent = self.config.opponents[duel["opponent"]]
        reply = await self.server_client.post(
            opponent.model.name,
            "/v1/responses",
            json={"input": [{"role": "user", "content": f"strike {body.strike}"}]},
            cookies=request.cookies,
        )
        await raise_for_status(reply)
        said = NeMoGymResponse.model_validate(await get_response_json(reply)).output_text
        duel["hits"] += body.strike > opponent.strength
        return {"reply": said, "done": duel["hits"] >= 2, "internal": "is filtered out"}

    async def close(self, body: dict[str, str]):
        return self.duels.pop(body["duel_id"], None)

    async def verify(
        self, request: Request, response: Response, body: BaseVerifyRequest
    ) -> BaseMultiRewardVerifyResponse:
        session_id = request.session[SESSION_ID_KEY]
        hits = sum(duel["hits"] for duel in self.duels.values() if duel["session"] == session_id)
        response.status_code = 200 if hits else 202
        return BaseMultiRewardVerifyResponse(
            **body.model_dump(), reward=min(hits / 2, 1.0), reward_components={"hits": hits, "style": 0.5}
        )

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        return AggregateMetrics(agent_metrics={"n": len(body.verify_responses)}, key_metrics={"n": 1})


if __name__ == "__main__":
    DuelArenaServer.run_webserver()
