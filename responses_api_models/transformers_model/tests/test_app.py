# SPDX-License-Identifier: Apache-2.0
"""The model server in front of a lent model, of a folder of weights, and of nothing at all."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: `make train-test` has an environment with it")

from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import build_server, running
from responses_api_models.transformers_model.app import TransformersModel

LENT: dict[str, Any] = {"lent_model": "tiny", "return_token_id_information": True, "seed": 0, "context_length": 200}
TOOL = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": True}


def serve(**fields: Any):
    return running(policy_model=(TransformersModel, {**LENT, **fields}))


async def ask(client: ServerClient, text: str = "Hello?", **fields: Any) -> NeMoGymResponse:
    body = {"input": text, "max_output_tokens": 8, **fields}
    reply = await client.post("policy_model", "/v1/responses", json=body)
    assert reply.status == 200, await reply.text()
    return NeMoGymResponse.model_validate(await reply.json())


async def test_a_response_carries_the_tokens_that_were_read_and_sampled(tiny):
    async with serve() as client:
        response = await ask(client)
    (item,) = response.output
    tokens: Any = item
    assert tokens.prompt_token_ids == tiny.tokenizer("u:Hello?|a:", add_special_tokens=False)["input_ids"]
    assert len(tokens.generation_token_ids) == len(tokens.generation_log_probs) <= 8
    said = tiny.tokenizer.decode(tokens.generation_token_ids, skip_special_tokens=True)
    assert item.content[0].text == said
    assert (response.model, response.usage.output_tokens) == ("tiny", len(tokens.generation_token_ids))


async def test_without_token_information_there_is_none():
    async with serve(return_token_id_information=False) as client:
        (item,) = (await ask(client)).output
    assert not hasattr(item, "generation_token_ids")


async def test_requests_at_the_same_time_become_few_batches_and_repeat_by_seed(tiny, monkeypatch):
    batches, inner = [], TransformersModel._run_batch
    monkeypatch.setattr(
        TransformersModel, "_run_batch", lambda self, batch: batches.append(batch) or inner(self, batch)
    )

    async def play() -> list[str]:
        async with serve(batch_wait_s=0.2, batch_size=6) as client:
            answers = await asyncio.gather(*(ask(client, text) for text in "aaaabbbbcc"))
        return [answer.output[0].content[0].text for answer in answers]

    first = await play()
    assert [len(batch) for batch in batches] == [6, 4]
    assert first == await play()
    assert len(set(first[:4])) > 1


async def test_chat_completions_give_several_choices_and_say_why_they_ended():
    async with serve() as client:
        body = {"messages": [{"role": "user", "content": "?"}], "n": 3, "max_tokens": 2, "temperature": 1}
        reply = await client.post("policy_model", "/v1/chat/completions", json=body)
    made = NeMoGymChatCompletion.model_validate(await reply.json())
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert {choice.finish_reason for choice in made.choices} <= {"length", "stop"}


async def test_a_prompt_longer_than_the_context_gives_an_incomplete_response():
    async with serve() as client:
        response = await ask(client, "x" * 300)
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_what_only_a_grammar_could_enforce_is_refused():
    async with serve() as client:
        for fields in (
            {"tools": [TOOL], "tool_choice": "required"},
            {"text": {"format": {"type": "json_object"}}},
        ):
            reply = await client.post("policy_model", "/v1/responses", json={"input": "?", **fields})
            assert reply.status == 400
            assert "no grammar" in await reply.text()
        assert (await ask(client, tools=[TOOL])).output


async def test_a_request_that_takes_too_long_fails_and_the_next_is_answered(tiny):
    async with serve(request_timeout_s=0.2) as client:
        tiny.lock.acquire()
        try:
            reply = await client.post("policy_model", "/v1/responses", json={"input": "?", "max_output_tokens": 4})
            assert reply.status >= 500
            assert "request_timeout_s = 0.2 s" in await reply.text()
        finally:
            tiny.lock.release()
    async with serve() as client:
        assert (await ask(client)).output


async def test_an_error_of_the_model_reaches_who_asked_and_the_server_goes_on(tiny, monkeypatch):
    async with serve() as client:
        with monkeypatch.context() as patch:
            patch.setattr(type(tiny.model), "forward", lambda self, **given: 1 / 0)
            reply = await client.post("policy_model", "/v1/responses", json={"input": "?", "max_output_tokens": 4})
            assert reply.status >= 500
        assert (await ask(client)).output


async def test_a_saved_model_is_loaded_by_its_path_and_says_the_same(tiny, tmp_path):
    tiny.model.save_pretrained(tmp_path / "saved")
    tiny.tokenizer.save_pretrained(tmp_path / "saved")
    async with serve() as client:
        lent = await ask(client, temperature=0)
    async with serve(lent_model=None, model_path=str(tmp_path / "saved")) as client:
        loaded = await ask(client, temperature=0)
        health = await client.get("policy_model", "/health")
        models = await client.get("policy_model", "/v1/models")
    assert loaded.output[0].content[0].text == lent.output[0].content[0].text
    assert (await health.json())["status"] == "ok"
    assert (await models.json())["data"][0]["id"] == "saved"


def test_a_model_that_nobody_lent_is_an_error_that_says_what_to_do():
    with pytest.raises(ConfigError, match=r"(?s)no model was lent by the name 'other'.*'tiny'.*hint:.*lend_model"):
        build_server(TransformersModel, lent_model="other")


def test_a_path_to_nothing_and_two_models_at_once_are_errors(tiny):
    with pytest.raises(ConfigError, match="there is nothing"):
        build_server(TransformersModel, model_path="no/such/folder")
    with pytest.raises(ConfigError, match="keep one of them"):
        build_server(TransformersModel, model_path="no/such/folder", lent_model="tiny")
