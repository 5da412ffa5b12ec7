# SPDX-License-Identifier: Apache-2.0
"""The server for chat-only endpoints against a real one in this process."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from nemo_gym.testing import build_server, running
from responses_api_models.inference_provider.app import InferenceProvider, InferenceProviderConfig
from tests.support.fake_openai import (
    FakeOpenAI,
    chat,
    cut_off,
    failing,
    html_page,
    rate_limited,
    tool_call,
    without_choices,
)

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": None}
QUESTION = {"input": "What is 1+1?"}
CHAT_QUESTION = {"messages": [{"role": "user", "content": "What is 1+1?"}]}


@asynccontextmanager
async def served(fake, **config):
    fields = {"base_url": fake.base_url, "api_key": "secret", "model": "llama", **config}
    async with running(policy_model=(InferenceProvider, fields)) as client:
        yield client


async def ask(client, path="/v1/responses", body=QUESTION):
    answer = await client.post("policy_model", path, json=body)
    return answer.status, await answer.json()


async def test_a_responses_request_is_answered_by_chat():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        status, answer = await ask(client, body={**QUESTION, "max_output_tokens": 7})
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "2"
    assert answer["model"] == "llama"
    assert answer["usage"]["total_tokens"] == 5
    assert fake.received[0].path == "/v1/chat/completions"
    assert fake.bodies[0]["max_tokens"] == 7
    assert fake.bodies[0]["model"] == "llama"


async def test_tool_calls_come_back_as_function_calls():
    async with FakeOpenAI(chat(tool_calls=[tool_call("f", "{}", "c1")])) as fake, served(fake) as client:
        _, answer = await ask(client, body={**QUESTION, "tools": [TOOL], "tool_choice": "required"})
    assert [(item["type"], item["call_id"]) for item in answer["output"]] == [("function_call", "c1")]
    assert answer["tool_choice"] == "required"


async def test_a_chat_request_goes_through():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        status, answer = await ask(client, "/v1/chat/completions", CHAT_QUESTION)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "2"
    assert fake.bodies == [{**CHAT_QUESTION, "model": "llama"}]


async def test_extra_body_comes_from_the_config_and_over_it_from_the_metadata():
    metadata = {"extra_body": '{"seed": 2}', "kept": "yes"}
    async with FakeOpenAI(chat("2")) as fake, served(fake, extra_body={"seed": 1, "top_k": 5}) as client:
        await ask(client, body={**QUESTION, "metadata": metadata})
    assert (fake.bodies[0]["seed"], fake.bodies[0]["top_k"]) == (2, 5)
    assert fake.bodies[0]["metadata"] == {"kept": "yes"}


@pytest.mark.parametrize(("parses", "types"), [(True, ["reasoning", "message"]), (False, ["message"])])
async def test_think_blocks_are_reasoning_only_with_the_parser(parses, types):
    async with FakeOpenAI(chat("<think>hm</think>2")) as fake, served(fake, uses_reasoning_parser=parses) as client:
        _, answer = await ask(client)
    assert [item["type"] for item in answer["output"]] == types


async def test_a_busy_endpoint_is_asked_again():
    async with FakeOpenAI(rate_limited("0"), chat("2")) as fake, served(fake) as client:
        assert (await ask(client))[0] == 200


@pytest.mark.parametrize(
    ("reply", "words"),
    [(html_page(), "text/html"), (cut_off(chat("2")), "unexpected end of data"), (without_choices(), "no choices")],
)
async def test_a_bad_reply_is_an_error_naming_the_endpoint(reply, words):
    async with FakeOpenAI(reply) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert status == 500
    assert words in answer
    assert fake.base_url in answer


async def test_a_broken_endpoint_is_given_up():
    async with FakeOpenAI(default=failing(500, "no GPU left")) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert (status, "no GPU left" in answer, len(fake.received)) == (500, True, 3)


def test_defaults():
    model = build_server(InferenceProvider, base_url="u", api_key="k", model="m")
    assert (model.config.uses_reasoning_parser, model.config.num_concurrent_requests) == (False, 1000)
    assert model.config.extra_body == {}


def test_the_shipped_config_names_the_policy_model():
    text = (Path(__file__).parents[1] / "configs" / "inference_provider.yaml").read_text()
    fields = yaml.safe_load(text)["policy_model"]["responses_api_models"]["inference_provider"]
    assert InferenceProviderConfig(**fields, host="h", port=1, name="policy_model").model == "${policy_model_name}"
