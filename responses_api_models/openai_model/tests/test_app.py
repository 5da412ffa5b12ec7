# SPDX-License-Identifier: Apache-2.0
"""The pass-through server against a real endpoint in this process."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest
import yaml
from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import build_server, message, running
from responses_api_models.openai_model.app import SimpleModelServer, SimpleModelServerConfig
from tests.support.fake_openai import (
    FakeOpenAI,
    chat,
    cut_off,
    failing,
    html_page,
    of_json,
    rate_limited,
    response,
    without_choices,
)

QUESTION = {"input": "What is 1+1?"}
CHAT_QUESTION = {"messages": [{"role": "user", "content": "What is 1+1?"}]}
CONFIGS = Path(__file__).parents[1] / "configs"


@asynccontextmanager
async def served(fake, **config):
    fields = {"openai_base_url": fake.base_url, "openai_api_key": "secret", "openai_model": "gpt-x", **config}
    async with running(policy_model=(SimpleModelServer, fields)) as client:
        yield client


async def ask(client, path="/v1/responses", body=QUESTION):
    answer = await client.post("policy_model", path, json=body)
    return answer.status, await answer.json()


async def test_a_responses_request_goes_through_with_the_configured_model():
    async with FakeOpenAI(response("2")) as fake, served(fake) as client:
        status, answer = await ask(client, body={**QUESTION, "model": "other", "temperature": 0.5})
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "2"
    assert fake.received[0].path == "/v1/responses"
    assert fake.bodies == [{"input": "What is 1+1?", "model": "gpt-x", "temperature": 0.5}]
    assert fake.received[0].headers["Authorization"] == "Bearer secret"


async def test_a_chat_request_goes_through_with_the_configured_model():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        status, answer = await ask(client, "/v1/chat/completions", CHAT_QUESTION)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "2"
    assert fake.received[0].path == "/v1/chat/completions"
    assert fake.bodies == [{**CHAT_QUESTION, "model": "gpt-x"}]


async def test_extra_body_fills_in_what_a_request_does_not_say():
    async with FakeOpenAI(response("2")) as fake, served(fake, extra_body={"top_p": 0.1, "temperature": 1}) as client:
        await ask(client, body={**QUESTION, "temperature": 0.5})
    assert (fake.bodies[0]["top_p"], fake.bodies[0]["temperature"]) == (0.1, 0.5)


async def test_default_headers_are_sent():
    headers = {"OpenAI-Organization": "org"}
    async with FakeOpenAI(response("2")) as fake, served(fake, openai_default_headers=headers) as client:
        await ask(client)
    assert fake.received[0].headers["OpenAI-Organization"] == "org"


@pytest.mark.parametrize(("drops", "types"), [(True, ["message", "function_call"]), (False, None)])
async def test_reasoning_items_are_dropped_from_the_input_only_if_asked(drops, types):
    items = [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    async with FakeOpenAI(response("2")) as fake, served(fake, drop_input_reasoning_items=drops) as client:
        await ask(client, body={"input": items})
    assert [item["type"] for item in fake.bodies[0]["input"]] == (types or [item["type"] for item in items])


async def test_no_more_requests_are_under_way_than_allowed():
    model = build_server(
        SimpleModelServer,
        openai_base_url="http://x/v1",
        openai_api_key="k",
        openai_model="m",
        max_concurrent_requests=2,
    )
    release, under_way, most = asyncio.Event(), 0, 0

    async def slow(**_):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await release.wait()
        under_way -= 1
        return REPLY

    model._client = MagicMock(spec=NeMoGymAsyncOpenAI)
    model._client.create_response = slow
    async with running(policy_model=model) as client:
        asking = [asyncio.create_task(ask(client)) for _ in range(5)]
        for _ in range(100):  # everything is in this process: enough for all five to get as far as they can
            await asyncio.sleep(0)
        assert under_way == 2
        release.set()
        assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 5
    assert most == 2


async def test_a_busy_endpoint_is_asked_again_as_it_wishes():
    async with FakeOpenAI(rate_limited(), failing(503), response("2")) as fake, served(fake) as client:
        status, _ = await ask(client)
    assert status == 200
    assert len(fake.received) == 3


async def test_an_endpoint_that_stays_broken_is_given_up_and_its_words_are_passed_on():
    async with FakeOpenAI(default=failing(500, "no GPU left")) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert status == 500
    assert "no GPU left" in answer
    assert len(fake.received) == 3


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (html_page(), "Welcome to the proxy"),
        (cut_off(response("2")), "unexpected end of data"),
        (of_json({"error": {"message": "quota"}}), "not a response"),
        (response(status="failed", error={"code": "server_error", "message": "boom"}), "boom"),
    ],
)
async def test_a_reply_that_is_no_response_is_an_error_with_its_cause(reply, words):
    async with FakeOpenAI(reply) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert status == 500
    assert words in answer
    assert fake.base_url in answer


@pytest.mark.parametrize(
    ("reply", "words"),
    [(html_page(), "text/html"), (cut_off(chat("2")), "unexpected end of data"), (without_choices(), "no choices")],
)
async def test_a_reply_that_is_no_chat_completion_is_an_error_naming_the_endpoint(reply, words):
    async with FakeOpenAI(reply) as fake, served(fake) as client:
        status, answer = await ask(client, "/v1/chat/completions", CHAT_QUESTION)
    assert status == 502
    assert words in answer["detail"]
    assert f"{fake.base_url}/chat/completions" in answer["detail"]


# --- config and the idioms of other people's tests --------------------------------------------------------------------

REPLY = {
    "id": "resp",
    "created_at": 1.0,
    "model": "m",
    "object": "response",
    "output": [message("2").model_dump()],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def config(**fields):
    base = {
        "host": "127.0.0.1",
        "port": 1,
        "entrypoint": "",
        "name": "m",
        "openai_base_url": "u",
        "openai_api_key": "k",
    }
    return SimpleModelServerConfig(**{**base, **fields})


def test_the_older_name_of_the_model_field_still_works():
    assert config(openai_model_name="gpt-old").openai_model == "gpt-old"
    assert config(openai_model="gpt-new").openai_model == "gpt-new"


def test_the_shipped_config_names_the_policy_model():
    block = yaml.safe_load((CONFIGS / "openai_model.yaml").read_text())["policy_model"]["responses_api_models"]
    assert config(**{**block["openai_model"], "openai_api_key": "k"}).openai_model == "${policy_model_name}"


def test_a_client_can_be_replaced_by_a_mock():
    server = SimpleModelServer(config=config(openai_model="m"), server_client=MagicMock(spec=ServerClient))
    app = server.setup_webserver()
    server._client = MagicMock(spec=NeMoGymAsyncOpenAI)
    server._client.create_response = AsyncMock(return_value=REPLY)
    assert TestClient(app).post("/v1/responses", json={"input": "hi"}).status_code == 200
    server._client.create_response.assert_awaited_once_with(input="hi", model="m")


# --- token ids --------------------------------------------------------------------------------------------------------

BUNDLE = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -0.25]}
LISTED = [{"token": "token_id:7", "logprob": -0.5}, {"token": "token_id:8", "logprob": -0.25}]


def tokens_of(item):
    return {name: item[name] for name in BUNDLE if name in item}


def text_item(**part):
    content = [{"type": "output_text", "text": "2!", "annotations": [], **part}]
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}


@pytest.mark.parametrize("ids", [{"token_ids": [7, 8]}, {}], ids=["as numbers", "in the log-probs"])
async def test_tokens_that_the_endpoint_sends_are_put_where_trainers_look(ids):
    on_chat = chat("2!", choice={"logprobs": {"content": LISTED}, **ids}, top={"prompt_token_ids": [1, 2, 3]})
    on_response = response(text_item(logprobs=LISTED), prompt_token_ids=[1, 2, 3], **ids)
    async with FakeOpenAI(on_chat, on_response) as fake, served(fake) as client:
        _, completed = await ask(client, "/v1/chat/completions", CHAT_QUESTION)
        _, answer = await ask(client)
    assert tokens_of(completed["choices"][0]["message"]) == BUNDLE
    assert tokens_of(answer["output"][0]) == BUNDLE
    assert "prompt_token_ids" not in answer


async def test_tokens_on_the_items_themselves_stay_there():
    async with FakeOpenAI(response({**text_item(), **BUNDLE})) as fake, served(fake) as client:
        _, answer = await ask(client)
    assert tokens_of(answer["output"][0]) == BUNDLE


@pytest.mark.parametrize("ids", [{"token_ids": [7, 8, 9]}, {"token_ids": None}], ids=["another number", "none"])
async def test_tokens_with_a_gap_are_not_made_up(ids):
    listed = {"content": [{"token": "2!", "logprob": -0.5}]}
    on_chat = chat("2!", choice={"logprobs": listed, **ids}, top={"prompt_token_ids": [1, 2, 3]})
    on_response = response(text_item(), prompt_token_ids=[1, 2, 3], **ids)
    async with FakeOpenAI(on_chat, on_response) as fake, served(fake) as client:
        status, completed = await ask(client, "/v1/chat/completions", CHAT_QUESTION)
        assert (status, tokens_of(completed["choices"][0]["message"])) == (200, {})
        status, answer = await ask(client)
        assert (status, tokens_of(answer["output"][0])) == (200, {})
    assert completed["prompt_token_ids"] == [1, 2, 3]


async def test_the_text_of_token_ids_is_the_endpoints():
    async with FakeOpenAI(of_json({"prompt": "hello"}), default=failing(404)) as fake, served(fake) as client:
        assert await ask(client, "/detokenize", {"tokens": [7]}) == (200, {"prompt": "hello"})
        assert (await ask(client, "/detokenize", {"tokens": [7]}))[0] == 501
