# SPDX-License-Identifier: Apache-2.0
"""The Azure server: the real SDK against a real endpoint in this process."""

import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from nemo_gym.config_types import ConfigError
from nemo_gym.testing import build_server, running
from responses_api_models.azure_openai_model.app import AzureOpenAIModelServer, AzureOpenAIModelServerConfig
from tests.support.fake_openai import FakeOpenAI, chat, cut_off, html_page, of_json, tool_call, without_choices

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": None}
QUESTION = {"input": "What is 1+1?"}
CHAT_QUESTION = {"messages": [{"role": "user", "content": "What is 1+1?"}]}
VERSION = {"api-version": "2024-10-21"}
BUSY = of_json({"error": {"message": "slow down"}}, 429, **{"retry-after-ms": "1"})


@asynccontextmanager
async def served(fake, **config):
    fields = {
        "openai_base_url": fake.url,
        "openai_api_key": "secret",
        "openai_model": "my-gpt",
        "default_query": VERSION,
    }
    fields = {**fields, "num_concurrent_requests": 2, **config}
    server = build_server(AzureOpenAIModelServer, **fields)
    async with running(policy_model=server) as client:
        yield client
    await server._client.close()


async def ask(client, path="/v1/responses", body=QUESTION):
    answer = await client.post("policy_model", path, json=body)
    return answer.status, await answer.json()


async def test_a_responses_request_reaches_the_deployment():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        status, answer = await ask(client, body={**QUESTION, "temperature": 0.5})
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "2"
    call = fake.received[0]
    assert call.path == "/openai/deployments/my-gpt/chat/completions"
    assert call.query["api-version"] == "2024-10-21"
    assert call.headers["api-key"] == "secret"
    assert call.body["temperature"] == 0.5


async def test_usage_and_tool_choice_are_kept():
    async with FakeOpenAI(chat(tool_calls=[tool_call("f", "{}", "c1")])) as fake, served(fake) as client:
        _, answer = await ask(client, body={**QUESTION, "tools": [TOOL], "tool_choice": "required"})
    assert answer["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    assert answer["tool_choice"] == "required"
    assert [item["type"] for item in answer["output"]] == ["function_call"]
    assert fake.bodies[0]["tool_choice"] == "required"


async def test_a_chat_request_goes_through_with_the_deployments_name():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        status, answer = await ask(client, "/v1/chat/completions", {**CHAT_QUESTION, "model": "other"})
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "2")
    assert fake.bodies[0] == {**CHAT_QUESTION, "model": "my-gpt"}


async def test_the_metadatas_extra_body_becomes_fields_of_the_request():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        await ask(client, body={**QUESTION, "metadata": {"extra_body": '{"seed": 1}'}})
    assert fake.bodies[0]["seed"] == 1
    assert "metadata" not in fake.bodies[0]


async def test_a_busy_deployment_is_asked_again_a_bounded_number_of_times():
    async with FakeOpenAI(BUSY, BUSY, chat("2")) as fake, served(fake) as client:
        assert (await ask(client))[0] == 200
    async with FakeOpenAI(default=BUSY) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert (status, "slow down" in answer, len(fake.received)) == (500, True, 6)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (html_page(), "Welcome to the proxy"),
        (cut_off(chat("2")), "JSONDecodeError"),
        (without_choices(), "no choices"),
    ],
)
async def test_a_bad_reply_is_an_error_with_its_cause(reply, words):
    async with FakeOpenAI(reply) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert status == 500
    assert words in answer


FIELDS = {"openai_base_url": "http://x", "openai_api_key": "k", "openai_model": "m", "num_concurrent_requests": 1}


def test_an_api_version_is_required():
    with pytest.raises(ConfigError, match="api-version"):
        build_server(AzureOpenAIModelServer, **FIELDS, default_query={})


def test_a_missing_sdk_is_named_with_the_way_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"nemo-gym\[azure\]"):
        build_server(AzureOpenAIModelServer, **FIELDS, default_query=VERSION)


def test_the_sdk_is_not_imported_until_a_server_is_built():
    code = "import sys, responses_api_models.azure_openai_model.app; sys.exit('openai' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", f"import nemo_gym; {code}"], cwd=root).returncode == 0


def test_the_shipped_config_is_valid():
    text = (Path(__file__).parents[1] / "configs" / "azure_openai_model.yaml").read_text()
    fields = yaml.safe_load(text)["policy_model"]["responses_api_models"]["azure_openai_model"]
    assert AzureOpenAIModelServerConfig(**fields, host="h", port=1, name="policy_model").default_query == VERSION
