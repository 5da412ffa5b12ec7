# SPDX-License-Identifier: Apache-2.0
from unittest.mock import AsyncMock, MagicMock, patch

from fastapi.testclient import TestClient

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from responses_api_models.think_model.app import ThinkModel


def make_model() -> ThinkModel:
    config = BaseResponsesAPIModelConfig(host="localhost", port=1, entrypoint="app.py", name="think")
    return ThinkModel(config=config, server_client=MagicMock(spec=ServerClient))


def test_reasoning_and_usage() -> None:
    model = make_model()
    client = TestClient(model.setup_webserver())
    history = [
        {"role": "user", "content": "q"},
        {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"role": "user", "content": "again"},
    ]
    body = client.post("/v1/responses", json={"input": history}).json()
    texts = [item["summary"][0]["text"] for item in body["output"] if item["type"] == "reasoning"]
    assert texts == ["start", "deep"]
    assert body["output"][-1]["content"][0]["text"] == "yes"
    assert body["usage"]["input_tokens"] == 3
    assert model.seen == [{"given": 1, "made": 2, "path": "/v1/responses"}]


async def test_request_is_optional() -> None:
    model = make_model()
    response = await model.responses(NeMoGymResponseCreateParamsNonStreaming(input="q"))
    assert isinstance(response, NeMoGymResponse)
    assert response.usage.total_tokens == 5


def test_a_handler_may_answer_with_anything() -> None:
    client = TestClient(make_model().setup_webserver())
    raw = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "raw"}]})
    assert (raw.status_code, raw.json()) == (418, {"raw": True})
    plain = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "dict"}]})
    assert plain.json() == {"choices": [], "note": '"dict"'}
    assert client.get("/get_inner_config").json() == {"base_url": "http://inner", "model": "think"}


def test_a_patched_method_is_what_the_route_calls() -> None:
    answer = make_response()
    with patch.object(ThinkModel, "responses", new_callable=AsyncMock, return_value=answer) as responses:
        client = TestClient(make_model().setup_webserver())
        assert client.post("/v1/responses", json={"input": "q"}).json()["id"] == "resp_fixed"
    responses.assert_awaited_once()


def make_response() -> NeMoGymResponse:
    return NeMoGymResponse(
        id="resp_fixed",
        created_at=0.0,
        model="m",
        object="response",
        output=[],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
