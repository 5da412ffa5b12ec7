# SPDX-License-Identifier: Apache-2.0
from unittest.mock import AsyncMock, MagicMock

import pytest
from aiohttp import ClientResponseError
from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymChatCompletion, NeMoGymChatCompletionMessage, NeMoGymChoice
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from responses_api_models.relay_model.app import RelayModel, RelayModelConfig


def completion(content: str | None, finish_reason: str = "stop", **message) -> NeMoGymChatCompletion:
    return NeMoGymChatCompletion(
        id="chtcmpl-123",
        object="chat.completion",
        created=1753983920,
        model="dummy_model",
        choices=[
            NeMoGymChoice(
                index=0,
                finish_reason=finish_reason,
                message=NeMoGymChatCompletionMessage(role="assistant", content=content, **message),
            )
        ],
    )


def make_model(monkeypatch: pytest.MonkeyPatch, urls: str | list[str] = "http://api.example/v1") -> RelayModel:
    config = RelayModelConfig(
        host="0.0.0.0",
        port=8081,
        base_url=urls,
        api_key="dummy_key",  # pragma: allowlist secret
        model="dummy_model",
        entrypoint="",
        name="",
        extra_body={"top_k": 5},
    )
    get_global_config_dict_mock = MagicMock()
    get_global_config_dict_mock.return_value = {}
    monkeypatch.setattr("nemo_gym.server_utils.get_global_config_dict", get_global_config_dict_mock)
    return RelayModel(config=config, server_client=MagicMock(spec=ServerClient))


def bad_status(status: int, content: bytes) -> ClientResponseError:
    error = ClientResponseError(request_info=MagicMock(), history=(), status=status)
    error.response_content = content
    return error


def test_config(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(monkeypatch)
    assert model.config.base_url == ["http://api.example/v1"]
    assert "dummy_key" not in repr(model._clients)


def test_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(monkeypatch)
    create = AsyncMock(return_value=completion("<think>hm</think>four").model_dump())
    monkeypatch.setattr(NeMoGymAsyncOpenAI, "create_chat_completion", create)
    client = TestClient(model.setup_webserver())
    reply = client.post("/v1/responses", json={"input": "2+2", "max_output_tokens": 7, "instructions": "count"})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert [item["type"] for item in body["output"]] == ["reasoning", "message"]
    assert body["output"][1]["content"][0]["text"] == "four"
    assert body["model"] == "dummy_model"
    sent = create.await_args.kwargs
    assert sent["top_k"] == 5
    assert sent["max_tokens"] == 7
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]


def test_responses_with_fixed_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    class FixedUUID:
        hex = "123"

    model = make_model(monkeypatch)
    model._clients = [MagicMock(spec=NeMoGymAsyncOpenAI)]
    model._clients[0].create_chat_completion.return_value = completion("x").model_dump()
    monkeypatch.setattr("nemo_gym.responses_converter.uuid4", lambda: FixedUUID())
    monkeypatch.setattr("nemo_gym.responses_converter.time", lambda: 1753983920.9)
    body = TestClient(model.setup_webserver()).post("/v1/responses", json={"input": "q"}).json()
    assert body["id"] == "resp_123"
    assert body["output"][0]["id"] == "msg_123"
    assert body["created_at"] == 1753983920


def test_sessions_stick_to_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(monkeypatch, ["http://one/v1", "http://two/v1"])
    backends = [MagicMock(spec=NeMoGymAsyncOpenAI) for _ in range(2)]
    for number, backend in enumerate(backends):
        backend.create_chat_completion = AsyncMock(return_value=completion(str(number)).model_dump())
    model._clients = backends
    app = model.setup_webserver()
    first, second = TestClient(app), TestClient(app)
    body = {"messages": [{"role": "user", "content": "q"}]}
    said = [c.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
            for c in (first, second, first, second)]  # fmt: skip
    assert said == ["0", "1", "0", "1"]


@pytest.mark.parametrize(("status", "content"), [(400, b"the context length is 8"), (429, b"slow down"), (404, b"")])
async def test_errors(monkeypatch: pytest.MonkeyPatch, status: int, content: bytes) -> None:
    model = make_model(monkeypatch)
    model._clients = [MagicMock(spec=NeMoGymAsyncOpenAI)]
    model._clients[0].create_chat_completion.side_effect = bad_status(status, content)
    request = MagicMock()
    request.session = {SESSION_ID_KEY: "s"}
    client = TestClient(model.setup_webserver())
    if status == 400:
        reply = client.post("/v1/responses", json={"input": "q"}).json()
        assert reply["status"] == "incomplete"
        assert reply["incomplete_details"]["reason"] == "max_output_tokens"
    else:
        with pytest.raises(RuntimeError if status == 429 else ClientResponseError):
            client.post("/v1/responses", json={"input": "q"})


def test_the_client_answers_with_plain_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    reply = MagicMock(ok=True, status=200)
    reply.read = AsyncMock(return_value=b'{"id": "x"}')
    reply.json = AsyncMock(return_value={"id": "x"})
    request = AsyncMock(return_value=reply)
    monkeypatch.setattr("nemo_gym.openai_utils.request", request)
    client = NeMoGymAsyncOpenAI(base_url="http://api.example/v1", api_key="k")  # pragma: allowlist secret
    assert asyncio.run(client.create_response(input="q")) == {"id": "x"}
    assert asyncio.run(client.create_tokenize(prompt="q")) == {"id": "x"}
    urls = [
        call.kwargs.get("url") or next(arg for arg in call.args if str(arg).startswith("http"))
        for call in request.await_args_list
    ]
    assert urls == ["http://api.example/v1/responses", "http://api.example/tokenize"]
