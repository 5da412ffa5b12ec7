# SPDX-License-Identifier: Apache-2.0
import copy
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.base_resources_server import BaseMultiRewardVerifyResponse, SimpleResourcesServer
from nemo_gym.server_utils import ServerClient
from resources_servers.essay_rubric.app import EssayServer, EssayVerifyRequest
from resources_servers.rubric_family.app import Criterion, RubricConfig, RubricServer, Scorer

CRITERIA = [{"name": "greets", "pattern": "(?i)hello"}, {"name": "ends", "weight": 0.5, "pattern": r"\.$"}]


def make_server(**kwargs) -> EssayServer:
    config = RubricConfig(host="h", port=1, entrypoint="", name="essay", criteria=CRITERIA, tone="formal")
    return EssayServer(config=config, server_client=MagicMock(spec=ServerClient), **kwargs)


def payload(text: str, **extra) -> dict:
    return {
        "responses_create_params": {"input": "write"},
        "response": {
            "id": "r",
            "created_at": 0.0,
            "model": "m",
            "object": "response",
            "output": [
                {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hello ."}]},
                {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
            ],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
        },
        "topic": "Greeting",
        **extra,
    }


def test_config_is_checked() -> None:
    with pytest.raises(ValidationError, match="a rubric needs criteria"):
        RubricConfig(host="h", port=1, entrypoint="", name="essay", criteria=[])
    with pytest.raises(TypeError):
        RubricServer(config=MagicMock(), server_client=MagicMock(spec=ServerClient))


def test_components_over_http() -> None:
    client = TestClient(make_server().setup_webserver())
    reply = client.post("/verify", json=payload("Hello there.", level=3)).json()
    assert reply["reward"] == pytest.approx(1.5)
    assert reply["reward_components"] == {"greets": 1.0, "ends": 0.5}
    assert reply["topic"] == "greeting"
    assert reply["level"] == 3
    assert reply["notes"] == ["tone=formal"]
    assert client.post("/verify", json=payload("x", topic="")).status_code == 422
    assert client.get("/reverify_mode").json() == "stateless"


async def test_fields_attributes_and_copies() -> None:
    server = make_server(scorer=Scorer([Criterion(name="any", pattern=".")]))
    body = EssayVerifyRequest.model_validate(payload("x", minimum_words=2))
    result = await server.verify(body)
    assert isinstance(result, BaseMultiRewardVerifyResponse)
    assert (result.reward, result.reward_components, server.calls) == (0.0, {"any": 1.0}, 1)
    again = copy.deepcopy(body)
    assert again == body
    assert again.response.output[1].content[0].text == "x"
    assert body.model_copy(update={"topic": "other"}).topic == "other"


async def test_methods_on_a_stand_in() -> None:
    stand_in = MagicMock(spec=SimpleResourcesServer)
    stand_in.config = MagicMock(name="config")
    assert hasattr(stand_in, "verify")
    assert hasattr(stand_in, "setup_webserver")
    text = EssayServer.text_of(stand_in, EssayVerifyRequest.model_validate(payload("abc")))
    assert text == "abc"
