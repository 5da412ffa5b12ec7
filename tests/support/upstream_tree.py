# SPDX-License-Identifier: Apache-2.0
"""A tree of servers as people have it who come from NVIDIA's NeMo Gym: nothing in it knows of this project.

A resources server with state per session, an agent of its own that calls itself over HTTP, their configs, data and
tests, each with the `requirements.txt` that NeMo Gym's template writes.
"""

import json
from pathlib import Path
from typing import Any

_RESOURCES_SERVER = """\
from typing import Dict

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class StockRoomResourcesServerConfig(BaseResourcesServerConfig):
    shelf: Dict[str, int]


class TakeRequest(BaseModel):
    item: str
    count: int


class TakeResponse(BaseModel):
    left: int


class StockRoomVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    expected: Dict[str, int]


class StockRoomVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    left: Dict[str, int]


class StockRoomResourcesServer(SimpleResourcesServer):
    config: StockRoomResourcesServerConfig
    session_id_to_shelf: Dict[str, Dict[str, int]] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/take")(self.take)
        return app

    async def seed_session(self, request: Request, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        self.session_id_to_shelf[request.session[SESSION_ID_KEY]] = dict(self.config.shelf)
        return BaseSeedSessionResponse()

    async def take(self, request: Request, body: TakeRequest) -> TakeResponse:
        shelf = self.session_id_to_shelf[request.session[SESSION_ID_KEY]]
        shelf[body.item] -= body.count
        return TakeResponse(left=shelf[body.item])

    async def verify(self, request: Request, body: StockRoomVerifyRequest) -> StockRoomVerifyResponse:
        shelf = self.session_id_to_shelf.get(request.session[SESSION_ID_KEY], {})
        return StockRoomVerifyResponse(**body.model_dump(), left=shelf, reward=float(shelf == body.expected))


if __name__ == "__main__":
    StockRoomResourcesServer.run_webserver()
"""
_RESOURCES_SERVER_TESTS = """\
from unittest.mock import MagicMock

from nemo_gym.server_utils import ServerClient
from resources_servers.stock_room.app import StockRoomResourcesServer, StockRoomResourcesServerConfig


class TestApp:
    def test_sanity(self) -> None:
        config = StockRoomResourcesServerConfig(
            host="0.0.0.0", port=8080, entrypoint="", name="", shelf={"bolts": 10}
        )
        StockRoomResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
"""
_RESOURCES_SERVER_CONFIG = """\
stock_room_resources_server:
  resources_servers:
    stock_room:
      entrypoint: app.py
      domain: agent
      verified: false
      shelf: {bolts: 10, nuts: 10}
stock_room_careful_agent:
  responses_api_agents:
    careful_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: stock_room_resources_server
      model_server:
        type: responses_api_models
        name: policy_model
      max_steps: 4
      datasets:
      - name: train
        type: train
        license: Apache 2.0
        jsonl_fpath: resources_servers/stock_room/data/train.jsonl
        num_repeats: 1
        gitlab_identifier:
          dataset_name: stock_room
          version: 0.0.1
          artifact_fpath: stock_room/train.jsonl
      - name: example
        type: example
        jsonl_fpath: resources_servers/stock_room/data/example.jsonl
        num_repeats: 1
"""
_AGENT = """\
import json
from typing import List

from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class CarefulAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = None


class CarefulAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class CarefulAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class CarefulAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class CarefulAgent(SimpleResponsesAPIAgent):
    config: CarefulAgentConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        outputs: List = []
        cookies = request.cookies
        for _ in range(self.config.max_steps or 10):
            turn = body.model_copy(update={"input": body.input + outputs})
            answer = await self.server_client.post(
                server_name=self.config.model_server.name, url_path="/v1/responses", json=turn
            )
            await raise_for_status(answer)
            model_response = NeMoGymResponse.model_validate(await get_response_json(answer))
            outputs.extend(model_response.output)
            calls = [o for o in model_response.output if isinstance(o, NeMoGymResponseFunctionToolCall)]
            if not calls:
                break
            for call in calls:
                tool = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=cookies,
                )
                cookies = tool.cookies or cookies
                output = (await tool.content.read()).decode()
                outputs.append(
                    NeMoGymFunctionCallOutput(type="function_call_output", call_id=call.call_id, output=output)
                )
        for name, value in cookies.items():
            response.set_cookie(name, getattr(value, "value", value))
        model_response.output = outputs
        return model_response

    async def run(self, request: Request, body: CarefulAgentRunRequest) -> CarefulAgentVerifyResponse:
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=request.cookies,
        )
        await raise_for_status(seeded)
        played = await self.server_client.post(
            server_name=self.config.name,
            url_path="/v1/responses",
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        await raise_for_status(played)
        verify_request = CarefulAgentVerifyRequest.model_validate(
            body.model_dump() | {"response": await get_response_json(played)}
        )
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=verify_request.model_dump(),
            cookies=seeded.cookies,
        )
        await raise_for_status(verified)
        return CarefulAgentVerifyResponse.model_validate(await get_response_json(verified))


if __name__ == "__main__":
    CarefulAgent.run_webserver()
"""
_AGENT_CONFIG = """\
careful_agent:
  responses_api_agents:
    careful_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: ???
      model_server:
        type: responses_api_models
        name: policy_model
"""
_REQUIREMENTS = "-e nemo-gym[dev] @ ../../\n"
_TOOL = {
    "type": "function",
    "name": "take",
    "description": "Take things from the shelf.",
    "parameters": {
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item", "count"],
        "additionalProperties": False,
    },
    "strict": True,
}
_COUNTS = (1, 2, 3, 4, 5)


def write_upstream_tree(folder: Path) -> None:
    """Write the servers, their configs, data and tests below `folder`."""
    tasks = "".join(json.dumps(_write_task(count)) + "\n" for count in _COUNTS)
    files = {
        "resources_servers/stock_room/app.py": _RESOURCES_SERVER,
        "resources_servers/stock_room/configs/stock_room.yaml": _RESOURCES_SERVER_CONFIG,
        "resources_servers/stock_room/tests/test_app.py": _RESOURCES_SERVER_TESTS,
        "resources_servers/stock_room/requirements.txt": _REQUIREMENTS,
        "resources_servers/stock_room/README.md": "# Stock room\n\nLicence: Apache 2.0\n",
        "resources_servers/stock_room/data/example.jsonl": tasks,
        "resources_servers/stock_room/data/train.jsonl": tasks,
        "responses_api_agents/careful_agent/app.py": _AGENT,
        "responses_api_agents/careful_agent/configs/careful_agent.yaml": _AGENT_CONFIG,
        "responses_api_agents/careful_agent/requirements.txt": _REQUIREMENTS,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def script_model() -> dict[str, list[Any]]:
    """Return what a fake endpoint has to say to solve every task."""
    return {_ask(count): [["take", {"item": "bolts", "count": count}], "Done."] for count in _COUNTS}


def _ask(count: int) -> str:
    return f"Take {count} bolts from the shelf."


def _write_task(count: int) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": _ask(count)}], "tools": [_TOOL]}
    return {"responses_create_params": params, "expected": {"bolts": 10 - count, "nuts": 10}}
