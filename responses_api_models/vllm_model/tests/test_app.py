# SPDX-License-Identifier: Apache-2.0
"""The vLLM server against real endpoints in this process."""

import mimetypes
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest
import yaml
from aiohttp import ClientResponseError
from fastapi.testclient import TestClient

from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymChatCompletion
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from nemo_gym.testing import build_server, running
from responses_api_models.vllm_model import app as vllm_app
from responses_api_models.vllm_model.app import VLLMConverter, VLLMModel, VLLMModelConfig
from tests.support.fake_openai import (
    FakeOpenAI,
    chat,
    completion,
    cut_off,
    failing,
    html_page,
    of_json,
    rate_limited,
    response,
    tool_call,
    without_choices,
)

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}
QUESTION = {"input": "What is 1+1?"}
CHAT_QUESTION = {"messages": [{"role": "user", "content": "What is 1+1?"}]}
CONFIG = {"api_key": "secret", "model": "qwen", "return_token_id_information": False, "uses_reasoning_parser": True}


def vllm(**config):
    return build_server(VLLMModel, **{"base_url": "http://nowhere/v1", **CONFIG, **config})


@asynccontextmanager
async def served(fake, **config):
    fields = {"base_url": fake.base_url, **CONFIG, **config}
    async with running(policy_model=(VLLMModel, fields)) as client:
        yield client


async def ask(client, body=QUESTION, path="/v1/responses", **kwargs):
    answer = await client.post("policy_model", path, json=body, **kwargs)
    return answer.status, await answer.json()


async def ask_chat(client, body=CHAT_QUESTION):
    return await ask(client, body, "/v1/chat/completions")


async def sent(body=QUESTION, path="/v1/responses", **config):
    """What the endpoint gets when the server with `config` is asked `body`."""
    async with FakeOpenAI(default=chat("ok")) as fake, served(fake, **config) as client:
        status, answer = await ask(client, body, path)
        assert status == 200, answer
    return fake.bodies[0]


# --- Responses in front, chat behind ----------------------------------------------------------------------------------


async def test_a_responses_request_is_answered_by_chat_with_the_configured_model():
    async with FakeOpenAI(chat("2")) as fake, served(fake) as client:
        status, answer = await ask(client, {**QUESTION, "model": "other", "max_output_tokens": 7})
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "2"
    assert (answer["model"], answer["status"]) == ("qwen", "completed")
    assert answer["usage"]["total_tokens"] == 5
    assert fake.received[0].path == "/v1/chat/completions"
    assert fake.received[0].headers["Authorization"] == "Bearer secret"
    content = [{"type": "text", "text": "What is 1+1?"}]
    assert fake.bodies == [{"messages": [{"role": "user", "content": content}], "model": "qwen", "max_tokens": 7}]


async def test_a_chat_request_goes_through_with_the_configured_model():
    assert await sent({**CHAT_QUESTION, "model": "other"}, "/v1/chat/completions") == {**CHAT_QUESTION, "model": "qwen"}


async def test_a_conversation_with_tools_goes_back_and_forth():
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    history = [
        {"role": "user", "content": "hi"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
    ]
    async with FakeOpenAI(chat(tool_calls=[tool_call("f", '{"x": 1}', "c2")])) as fake, served(fake) as client:
        _, answer = await ask(client, {"input": history, "tools": [TOOL], "tool_choice": "auto"})
    assert [message["role"] for message in fake.bodies[0]["messages"]] == ["user", "assistant", "tool"]
    assert "strict" not in fake.bodies[0]["tools"][0]["function"]
    assert [(i["type"], i["call_id"], i["arguments"]) for i in answer["output"]] == [
        ("function_call", "c2", '{"x": 1}')
    ]


async def test_default_headers_are_sent():
    async with FakeOpenAI(chat("2")) as fake, served(fake, default_headers={"X-Team": "gym"}) as client:
        await ask(client)
    assert fake.received[0].headers["X-Team"] == "gym"


# --- native Responses -------------------------------------------------------------------------------------------------


async def test_a_native_endpoint_gets_the_request_as_it_is():
    async with FakeOpenAI(response("2")) as fake, served(fake, is_responses_native=True, extra_body={"k": 1}) as client:
        status, answer = await ask(client, {**QUESTION, "metadata": {"extra_body": '{"seed": 3}'}})
    assert (status, answer["output"][0]["content"][0]["text"]) == (200, "2")
    assert fake.received[0].path == "/v1/responses"
    assert fake.bodies == [{"input": "What is 1+1?", "model": "qwen", "k": 1, "seed": 3}]


@pytest.mark.parametrize(
    "setting",
    [
        {"return_token_id_information": True},
        {"replace_developer_role_with_system": True},
        {"sequential_reasoning_allowed": False},
    ],
)
async def test_native_pass_through_refuses_what_it_cannot_do(setting):
    async with FakeOpenAI() as fake, served(fake, is_responses_native=True, **setting) as client:
        status, answer = await ask(client)
    assert status == 500
    assert "NotImplementedError" in answer
    assert next(iter(setting)) in answer
    assert not fake.received


async def test_a_conversation_too_long_for_a_native_endpoint_is_incomplete():
    too_long = failing(400, "exceeds the maximum context length")
    async with FakeOpenAI(too_long) as fake, served(fake, is_responses_native=True) as client:
        status, answer = await ask(client)
    assert (status, answer["incomplete_details"]) == (200, {"reason": "max_output_tokens"})


# --- what the endpoint is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replaces", "role"), [(True, "system"), (False, "developer")])
async def test_developer_becomes_system_if_asked(replaces, role):
    body = {"input": [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]}
    messages = (await sent(body, replace_developer_role_with_system=replaces))["messages"]
    assert [message["role"] for message in messages] == [role, "user"]


async def test_chat_template_kwargs_come_from_the_config_and_over_it_from_the_metadata():
    body = {**QUESTION, "metadata": {"chat_template_kwargs": '{"thinking": false}', "kept": "yes"}}
    request = await sent(body, chat_template_kwargs={"thinking": True, "style": 1})
    assert request["chat_template_kwargs"] == {"thinking": False, "style": 1}
    assert request["metadata"] == {"kept": "yes"}


async def test_extra_body_is_config_under_metadata_under_the_request():
    body = {**QUESTION, "temperature": 0.3, "metadata": {"extra_body": '{"seed": 2, "temperature": 0.2}'}}
    request = await sent(body, extra_body={"seed": 1, "temperature": 0.1, "cache": {"no-cache": True}})
    assert (request["seed"], request["temperature"], request["cache"]) == (2, 0.3, {"no-cache": True})
    assert "metadata" not in request


@pytest.mark.parametrize("text", ["{not json", "[1]"])
async def test_metadata_that_is_no_json_object_is_an_error_that_names_it(text):
    async with FakeOpenAI() as fake, served(fake) as client:
        status, answer = await ask(client, {**QUESTION, "metadata": {"extra_body": text}})
    assert status == 500
    assert "metadata.extra_body must be a JSON object" in answer


async def test_sampling_overrides_win_over_everything():
    body = {**QUESTION, "temperature": 0.3, "metadata": {"extra_body": '{"top_k": 2}'}}
    request = await sent(body, sampling_overrides={"temperature": 1.0, "top_k": 7})
    assert (request["temperature"], request["top_k"]) == (1.0, 7)


async def test_a_null_top_logprobs_is_dropped():
    assert "top_logprobs" not in await sent({**CHAT_QUESTION, "top_logprobs": None}, "/v1/chat/completions")


ASSISTANT = {"role": "assistant", "content": "<think>a</think><think>b</think>hello"}
THINKING = {"messages": [{"role": "user", "content": "hi"}, ASSISTANT, {"role": "user", "content": "go on"}]}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({}, {"content": "hello", "reasoning_content": "a", "reasoning": "a"}),
        ({"uses_interleaved_reasoning": False}, {"content": "hello"}),
        ({"preserve_reasoning_in_assistant_content": True}, {"content": ASSISTANT["content"]}),
        ({"uses_reasoning_parser": False}, {"content": ASSISTANT["content"]}),
    ],
)
async def test_earlier_reasoning_leaves_the_text_and_the_first_block_goes_beside_it(setting, expected):
    request = await sent(THINKING, "/v1/chat/completions", **setting)
    assert request["messages"][1] == {"role": "assistant", **expected}


async def test_reasoning_is_taken_out_of_text_parts_too():
    parts = [{"type": "text", "text": "<think>a</think>he"}, {"type": "text", "text": "llo"}]
    body = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": parts}]}
    message = (await sent(body, "/v1/chat/completions"))["messages"][1]
    assert (message["reasoning"], [part["text"] for part in message["content"]]) == ("a", ["he", "llo"])


async def test_reasoning_items_of_a_conversation_are_sent_beside_the_text():
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    message = (await sent({"input": [{"role": "user", "content": "hi"}, thought, call, output]}))["messages"][1]
    assert (message["reasoning_content"], message["content"] or "") == ("hm", "")
    assert message["tool_calls"][0]["function"]["name"] == "f"


# --- audio ------------------------------------------------------------------------------------------------------------


async def audio_parts(tmp_path, metadata, **config):
    body = {
        "input": [{"role": "user", "content": "earlier"}, {"role": "user", "content": "listen"}],
        "metadata": metadata,
    }
    request = await sent(body, audio_root=str(tmp_path), **config)
    assert "metadata" not in request
    assert request["messages"][0]["content"] == "earlier"
    *parts, text = request["messages"][1]["content"]
    assert text == {"type": "text", "text": "listen"}
    assert {part["type"] for part in parts} == {"audio_url"}
    return [part["audio_url"]["url"] for part in parts]


async def test_audio_goes_before_the_text_of_the_last_user_message(tmp_path):
    (tmp_path / "a.mp3").write_bytes(b"abc")
    (tmp_path / "b.wav").write_bytes(b"xyz")
    mp3, wav = "data:audio/mpeg;base64,YWJj", f"data:{mimetypes.guess_type('b.wav')[0]};base64,eHl6"
    assert await audio_parts(tmp_path, {"audio_path": "a.mp3"}) == [mp3]
    assert await audio_parts(tmp_path, {"audio_paths": '["a.mp3", "b.wav"]'}) == [mp3, wav]
    assert await audio_parts(tmp_path, {"audio_data": "YWJj"}) == ["data:audio/wav;base64,YWJj"]
    assert await audio_parts(tmp_path, {"audio_data": "data:audio/ogg;base64,YWJj"}) == ["data:audio/ogg;base64,YWJj"]


async def test_audio_goes_after_images_and_before_the_first_text_part():
    image = {"type": "image_url", "image_url": {"url": "http://x/i.png"}}
    content = [image, {"type": "text", "text": "look"}, {"type": "text", "text": "listen"}]
    body = {"messages": [{"role": "user", "content": content}], "metadata": {"audio_data": "YWJj"}}
    request = await sent(body, "/v1/chat/completions")
    kinds = [part["type"] for part in request["messages"][0]["content"]]
    assert kinds == ["image_url", "audio_url", "text", "text"]


async def test_audio_needs_a_user_message():
    body = {"messages": [{"role": "system", "content": "hi"}], "metadata": {"audio_data": "YWJj"}}
    async with FakeOpenAI() as fake, served(fake) as client:
        status, answer = await ask_chat(client, body)
    assert status == 500
    assert "no user message" in answer


async def test_without_audio_root_paths_are_taken_as_they_are(tmp_path):
    (tmp_path / "a.mp3").write_bytes(b"abc")
    request = await sent({**QUESTION, "metadata": {"audio_path": str(tmp_path / "a.mp3")}})
    assert request["messages"][0]["content"][0]["audio_url"]["url"] == "data:audio/mpeg;base64,YWJj"


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"audio_data": "x", "audio_path": "a.wav"}, "more than once"),
        ({"audio_path": "missing.wav"}, "cannot read the audio file"),
        ({"audio_path": "../outside.wav"}, "outside of `audio_root`"),
        ({"audio_paths": "a.wav"}, "JSON list"),
    ],
)
async def test_bad_audio_is_an_error_that_says_what_is_wrong(tmp_path, metadata, words):
    async with FakeOpenAI() as fake, served(fake, audio_root=str(tmp_path)) as client:
        status, answer = await ask(client, {**QUESTION, "metadata": metadata})
    assert status == 500
    assert words in answer


# --- the reply's reasoning --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_with_the_parser_reasoning_is_wrapped_before_the_text(field):
    async with FakeOpenAI(default=chat("2", **{field: "hm"})) as fake, served(fake) as client:
        _, answer = await ask_chat(client)
        _, items = await ask(client)
    assert answer["choices"][0]["message"]["content"] == "<think>hm</think>2"
    assert not {"reasoning", "reasoning_content"} & answer["choices"][0]["message"].keys()
    assert [item["type"] for item in items["output"]] == ["reasoning", "message"]
    assert items["output"][0]["summary"][0]["text"] == "hm"
    assert items["output"][1]["content"][0]["text"] == "2"


async def test_without_the_parser_reasoning_is_an_error_that_names_the_setting():
    async with FakeOpenAI(chat("2", reasoning="hm")) as fake, served(fake, uses_reasoning_parser=False) as client:
        status, answer = await ask(client)
    assert status == 500
    assert "AssertionError" in answer
    assert "uses_reasoning_parser" in answer


async def test_without_the_parser_think_blocks_stay_text_and_null_reasoning_is_fine():
    reply = chat("<think>hm</think>2", reasoning=None, reasoning_content=None)
    async with FakeOpenAI(reply) as fake, served(fake, uses_reasoning_parser=False) as client:
        _, answer = await ask(client)
    assert answer["output"][0]["content"][0]["text"] == "<think>hm</think>2"


# --- token ids and log-probs ------------------------------------------------------------------------------------------

BUNDLE = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -0.25]}


def logprobs(*tokens, values=(-0.5, -0.25)):
    pairs = zip(tokens, values, strict=True)
    return {"content": [{"token": t, "logprob": v, "bytes": None, "top_logprobs": []} for t, v in pairs]}


SPELLED = logprobs("token_id:7", "token_id:8")
SOURCES = {
    "on the message": chat("2", **BUNDLE),
    "beside the choice": chat(
        "2", choice={"token_ids": [7, 8], "logprobs": SPELLED}, top={"prompt_token_ids": [1, 2, 3]}
    ),
    "in the log-probs": chat("2", choice={"logprobs": SPELLED, "token_ids": None}, top={"prompt_token_ids": None}),
}


def tokens_of(item):
    return {name: item.get(name) for name in BUNDLE}


@pytest.mark.parametrize("reply", SOURCES.values(), ids=SOURCES)
async def test_tokens_are_found_wherever_the_endpoint_put_them(reply):
    async with FakeOpenAI(reply, reply, tokens=[1, 2, 3]) as fake:
        async with served(fake, return_token_id_information=True) as client:
            _, answer = await ask(client)
            _, completed = await ask_chat(client)
    assert tokens_of(answer["output"][-1]) == BUNDLE
    message = completed["choices"][0]["message"]
    assert tokens_of(message) == BUNDLE
    assert "token_ids" not in completed["choices"][0]
    assert completed["choices"][0]["logprobs"] is None


async def test_tokens_ride_on_the_last_item_only():
    reply = chat("2", reasoning="hm", tool_calls=[tool_call("f")], **BUNDLE)
    async with FakeOpenAI(reply) as fake, served(fake, return_token_id_information=True) as client:
        _, answer = await ask(client)
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
    assert [tokens_of(item) == BUNDLE for item in answer["output"]] == [False, False, True]


async def test_token_mode_asks_for_what_it_needs():
    async with FakeOpenAI(default=SOURCES["in the log-probs"], tokens=[1, 2, 3]) as fake:
        async with served(fake, return_token_id_information=True) as client:
            await ask(client, {**QUESTION, "tools": [TOOL], "metadata": {"chat_template_kwargs": '{"t": 1}'}})
        async with served(
            fake, return_token_id_information=True, request_prompt_and_generation_token_ids=True
        ) as client:
            await ask(client)
    plain, with_ids = fake.bodies
    wanted = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
    assert wanted.items() <= plain.items()
    assert "return_token_ids" not in plain
    assert {**wanted, "return_token_ids": True}.items() <= with_ids.items()
    tokenized = fake.calls_to("/tokenize")[0]
    assert tokenized.path == "/tokenize"
    names = ("model", "messages", "tools", "chat_template_kwargs")
    assert tokenized.body == {name: plain[name] for name in names}


async def test_without_token_mode_nothing_of_it_is_asked_or_returned():
    async with FakeOpenAI(chat("2", **BUNDLE)) as fake, served(fake) as client:
        _, answer = await ask(client)
    assert "logprobs" not in fake.bodies[0]
    assert not BUNDLE.keys() & answer["output"][0].keys()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (chat("2", prompt_token_ids=[1], generation_token_ids=[7]), "message is not complete"),
        (chat("2", top={"prompt_token_ids": [1]}, choice={"logprobs": SPELLED}), "must come together"),
        (chat("2", choice={"token_ids": [7, 8], "logprobs": SPELLED}), "must come together"),
        (chat("2", top={"prompt_token_ids": [1]}, choice={"token_ids": [7, 8]}), "must come together"),
        (chat("2", choice={"logprobs": logprobs("Hel", "lo")}), "no token ids"),
        (chat("2", choice={"logprobs": logprobs("token_id:7", "lo")}), "no token ids"),
        (chat("2"), "no token ids"),
        (chat("2", top={"prompt_token_ids": [1]}, choice={"token_ids": [7, 9], "logprobs": SPELLED}), "disagree"),
        (chat("2", **BUNDLE, top={"prompt_token_ids": [9]}), "disagree"),
        (chat("2", **BUNDLE, choice={"token_ids": [9]}), "disagree"),
        (chat("2", **{**BUNDLE, "generation_log_probs": [-0.5]}), "2 generated tokens but 1 log-probs"),
        (
            chat("2", top={"prompt_token_ids": [1]}, choice={"token_ids": [7], "logprobs": SPELLED}),
            "1 generated tokens but 2 log-probs",
        ),
    ],
)
async def test_partial_or_disagreeing_tokens_are_an_error_that_says_what_was_found(reply, words):
    async with FakeOpenAI(reply) as fake, served(fake, return_token_id_information=True) as client:
        status, answer = await ask(client)
    assert status == 500
    assert "RuntimeError" in answer
    assert words in answer
    assert "found: message.prompt_token_ids" in answer


FIRST = {"role": "assistant", "content": "1", **BUNDLE}
SECOND = {"role": "assistant", "content": "2", **BUNDLE, "prompt_token_ids": [1, 2, 3, 7, 8, 9]}
HISTORY = [CHAT_QUESTION["messages"][0], FIRST, {"role": "user", "content": "And?"}, SECOND]


async def test_the_tokens_so_far_are_required_of_an_endpoint_that_heeds_them():
    settings = {"return_token_id_information": True, "send_required_prefix_token_ids": True}
    async with FakeOpenAI(default=SOURCES["in the log-probs"], tokens=[1, 2, 3]) as fake:
        async with served(fake, **settings) as client:
            await ask_chat(client, {"messages": [*HISTORY, {"role": "user", "content": "And?"}]})
            await ask_chat(client)
        async with served(fake, return_token_id_information=True) as client:
            await ask_chat(client, {"messages": HISTORY})
    later, first, unasked = fake.bodies
    assert later["required_prefix_token_ids"] == [1, 2, 3, 7, 8, 9, 7, 8]
    assert fake.calls_to("/tokenize")[0].body["required_prefix_token_ids"] == [1, 2, 3, 7, 8, 9, 7, 8]
    assert "required_prefix_token_ids" not in first
    assert "required_prefix_token_ids" not in unasked


async def test_an_endpoint_that_does_not_heed_the_prefix_is_told_of_once(caplog):
    heeded = chat("3", **{**BUNDLE, "prompt_token_ids": [1, 2, 3, 7, 8, 9, 7, 8, 5]})
    settings = {"return_token_id_information": True, "send_required_prefix_token_ids": True}
    async with FakeOpenAI(heeded, default=SOURCES["on the message"]) as fake, served(fake, **settings) as client:
        assert (await ask_chat(client, {"messages": HISTORY}))[0] == 200
        assert "required_prefix_token_ids" not in caplog.text
        for _ in range(2):
            assert (await ask_chat(client, {"messages": HISTORY}))[0] == 200
    assert caplog.text.count("required_prefix_token_ids") == 1


async def test_the_text_of_token_ids_is_the_endpoints():
    async with FakeOpenAI(of_json({"prompt": "hello"}), default=failing(404)) as fake, served(fake) as client:
        assert await ask(client, {"tokens": [7, 8]}, "/detokenize") == (200, {"prompt": "hello"})
        status, answer = await ask(client, {"tokens": [7]}, "/detokenize")
    assert fake.received[0].path == "/detokenize"
    assert fake.bodies[0] == {"model": "qwen", "tokens": [7, 8]}
    assert (status, "no /detokenize" in str(answer)) == (501, True)


async def test_a_native_endpoint_may_send_tokens_beside_its_answer():
    listed = [{"token": "2", "logprob": -0.5}, {"token": "!", "logprob": -0.25}]
    text = {"type": "output_text", "text": "2!", "annotations": [], "logprobs": listed}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    reply = response(item, prompt_token_ids=[1, 2, 3], token_ids=[7, 8])
    async with FakeOpenAI(reply) as fake, served(fake, is_responses_native=True) as client:
        _, answer = await ask(client)
    assert tokens_of(answer["output"][0]) == BUNDLE


async def test_a_tokenize_reply_without_tokens_is_an_error():
    async with (
        FakeOpenAI(SOURCES["in the log-probs"]) as fake,
        served(fake, return_token_id_information=True) as client,
    ):
        fake.tokenize_reply = of_json({"detail": "disabled"})
        status, answer = await ask(client)
    assert status == 500
    assert "/tokenize" in answer


async def test_routed_experts_travel_with_the_tokens():
    reply = chat("2", **BUNDLE, choice={"routed_experts": "blob"})
    async with FakeOpenAI(reply) as fake, served(fake, return_token_id_information=True) as client:
        _, answer = await ask(client)
    assert answer["output"][-1]["routed_experts"] == "blob"


@pytest.mark.parametrize("tokens", [True, False])
async def test_several_choices_are_refused_in_token_mode_only(tokens):
    async with FakeOpenAI(chat("2")) as fake, served(fake, return_token_id_information=tokens) as client:
        status, answer = await ask_chat(client, {**CHAT_QUESTION, "n": 2})
    assert status == (500 if tokens else 200)
    assert not tokens or "asks for 2" in answer


async def test_the_tokens_of_earlier_turns_are_sent_along_in_token_mode():
    said = {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "content": [{"type": "output_text", "text": "2", "annotations": []}],
    }
    body = {"input": [{"role": "user", "content": "hi"}, {**said, **BUNDLE}, {"role": "user", "content": "more"}]}
    async with FakeOpenAI(chat("3", **BUNDLE)) as fake, served(fake, return_token_id_information=True) as client:
        await ask(client, body)
    assert tokens_of(fake.bodies[0]["messages"][1]) == BUNDLE


# --- several endpoints ------------------------------------------------------------------------------------------------


async def test_a_session_always_goes_to_one_endpoint_and_sessions_spread_over_them():
    async with FakeOpenAI(default=chat("a")) as first, FakeOpenAI(default=chat("b")) as second:
        async with served(first, base_url=[first.base_url, second.base_url]) as client:
            for _ in range(12):
                before = len(first.received), len(second.received)
                answer = await client.post("policy_model", "/v1/responses", json=QUESTION)
                cookies = {name: morsel.value for name, morsel in answer.cookies.items()}
                for _ in range(2):
                    await ask(client, cookies=cookies)
                grown = len(first.received) - before[0], len(second.received) - before[1]
                assert sorted(grown) == [0, 3]
    assert first.received
    assert second.received


def test_the_endpoint_of_a_session_is_chosen_by_its_hash():
    model = vllm(base_url=["http://a/v1", "http://b/v1", "http://c/v1"])
    for session in ("one", "two", "three"):
        request = MagicMock(session={SESSION_ID_KEY: session})
        expected = int(sha256(session.encode()).hexdigest(), 16) % 3
        assert model._resolve_client(request) is model._clients[expected]


def test_a_server_without_endpoint_says_so():
    with pytest.raises(ConfigError, match="has no endpoint"):
        vllm(base_url=[])._resolve_client(MagicMock())


# --- ends and failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["maximum context length is 4096 tokens", "max_tokens must be at least 1, got -3"])
async def test_a_conversation_that_outgrew_the_context_ends_as_an_empty_incomplete_reply(words):
    async with FakeOpenAI(default=failing(400, words)) as fake, served(fake) as client:
        status, answer = await ask(client)
        _, completed = await ask_chat(client)
    assert status == 200
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["content"][0]["text"] for item in answer["output"]] == [""]
    assert completed["choices"][0]["finish_reason"] == "length"
    assert not completed["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("status", "words"), [(400, "unknown field"), (413, "context length")])
async def test_other_refusals_stay_errors(status, words):
    async with FakeOpenAI(failing(status, words)) as fake, served(fake) as client:
        answered, answer = await ask(client)
    assert answered == 500
    assert words in answer


ONLY_THOUGHT = {
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
    ]
}


async def test_after_a_turn_of_only_reasoning_the_model_is_asked_again_or_not_as_configured():
    async with FakeOpenAI(default=chat("2")) as fake:
        async with served(fake) as client:
            _, again = await ask(client, ONLY_THOUGHT)
        assert (again["status"], len(fake.received)) == ("completed", 1)
        async with served(fake, sequential_reasoning_allowed=False) as client:
            _, stopped = await ask(client, ONLY_THOUGHT)
            assert len(fake.received) == 1
            _, answered = await ask(client)
    assert (stopped["status"], stopped["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert answered["status"] == "completed"


async def test_a_busy_endpoint_is_asked_again_and_a_broken_one_given_up():
    async with FakeOpenAI(rate_limited("0"), failing(502), chat("2")) as fake, served(fake) as client:
        assert (await ask(client))[0] == 200
    async with FakeOpenAI(default=failing(500, "no GPU left")) as fake, served(fake) as client:
        status, answer = await ask(client)
    assert (status, "no GPU left" in answer, len(fake.received)) == (500, True, 3)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (html_page(), "text/html"),
        (cut_off(chat("2")), "unexpected end of data"),
        (without_choices(), "no choices"),
        (of_json({"error": {"message": "quota"}}), "quota"),
        (of_json({"choices": [{"index": 0, "finish_reason": "stop"}]}), "no message"),
        (of_json(["not", "an", "object"]), "expected an object"),
    ],
)
@pytest.mark.parametrize("tokens", [True, False])
async def test_a_bad_reply_is_an_error_naming_the_endpoint_and_never_an_empty_answer(reply, words, tokens):
    async with FakeOpenAI(reply) as fake, served(fake, return_token_id_information=tokens) as client:
        status, answer = await ask(client)
    assert status == 500
    assert words in answer
    assert f"{fake.base_url}/chat/completions" in answer


# --- /v1/completions --------------------------------------------------------------------------------------------------


async def test_the_completions_api_gets_the_plain_texts():
    body = {
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1="}],
        "temperature": 0,
    }
    async with FakeOpenAI(completion("2")) as fake, served(fake, use_completions_api=True) as client:
        _, answer = await ask(client, {**body, "max_output_tokens": 5})
    assert fake.received[0].path == "/v1/completions"
    assert fake.bodies == [{"prompt": "Be brief.\n\n1+1=", "model": "qwen", "temperature": 0, "max_tokens": 5}]
    assert answer["output"][0]["content"][0]["text"] == "2"
    assert answer["usage"]["total_tokens"] == 5


async def test_the_completions_api_gives_tokens_too():
    spelled = {"tokens": ["token_id:7", "token_id:8"], "token_logprobs": [-0.5, -0.25]}
    direct = completion("2", token_ids=[7, 8], prompt_token_ids=[1, 2, 3], logprobs=spelled)
    async with FakeOpenAI(completion("2", logprobs=spelled), direct, tokens=[1, 2, 3]) as fake:
        async with served(fake, use_completions_api=True, return_token_id_information=True) as client:
            for _ in range(2):
                _, answer = await ask(client)
                assert tokens_of(answer["output"][-1]) == BUNDLE
    assert fake.bodies[0]["logprobs"] == 0
    assert [call.body for call in fake.calls_to("/tokenize")] == [{"model": "qwen", "prompt": "What is 1+1?"}]


async def test_a_plain_prompt_can_only_hold_text():
    image = {"type": "image_url", "image_url": {"url": "http://x/i.png"}}
    async with FakeOpenAI() as fake, served(fake, use_completions_api=True) as client:
        status, answer = await ask_chat(client, {"messages": [{"role": "user", "content": [image]}]})
    assert status == 500
    assert "can only hold text, not 'image_url'" in answer


async def test_the_completions_api_is_given_the_chat_requests_limit():
    async with FakeOpenAI(completion("2")) as fake, served(fake, use_completions_api=True) as client:
        await ask_chat(client, {**CHAT_QUESTION, "max_completion_tokens": 4})
    assert fake.bodies == [{"prompt": "What is 1+1?", "model": "qwen", "max_tokens": 4}]


async def test_a_conversation_needs_the_chat_template():
    body = {"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    async with FakeOpenAI() as fake, served(fake, use_completions_api=True) as client:
        status, answer = await ask(client, body)
    assert status == 500
    assert "render_chat_template" in answer


async def test_the_chat_template_is_rendered_by_the_tokenizer(monkeypatch):
    class Tokenizer:
        def apply_chat_template(self, messages, *, tools, tokenize, add_generation_prompt, **kwargs):
            assert (tokenize, add_generation_prompt, kwargs) == (False, True, {"t": 1})
            return "".join(f"<{message['role']}>" for message in messages) + f"<{len(tools)} tools>"

    loaded = []
    monkeypatch.setattr(vllm_app.completions, "load_tokenizer", lambda name: loaded.append(name) or Tokenizer())
    config = {"use_completions_api": True, "render_chat_template": True, "chat_template_kwargs": {"t": 1}}
    async with FakeOpenAI(default=completion("2")) as fake, served(fake, tokenizer="tok", **config) as client:
        for _ in range(2):
            status, _ = await ask(client, {**QUESTION, "tools": [TOOL]})
            assert status == 200
    assert loaded == ["tok"]
    assert fake.bodies[0] == {"prompt": "<user><1 tools>", "model": "qwen", "add_special_tokens": False}


async def test_a_missing_transformers_package_is_named_with_the_way_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    config = {"use_completions_api": True, "render_chat_template": True}
    async with FakeOpenAI() as fake, served(fake, **config) as client:
        status, answer = await ask(client)
    assert status == 500
    assert "pip install transformers" in answer


# --- names, hooks and the idioms of other people's tests --------------------------------------------------------------


def test_the_names_that_others_import_are_here():
    names = "VLLMConverter VLLMModel VLLMModelConfig split_responses_input_output_items"
    for name in [*names.split(), "VLLMConverterResponsesToChatCompletionsState"]:
        assert hasattr(vllm_app, name)


def test_defaults_are_those_of_the_contract():
    config = vllm().config
    assert config.base_url == ["http://nowhere/v1"]
    given = {*CONFIG, "base_url", "name", "host", "port", "entrypoint"}
    defaults = {name: getattr(config, name) for name in VLLMModelConfig.model_fields.keys() - given}
    contract = {
        "request_prompt_and_generation_token_ids": False,
        "uses_interleaved_reasoning": True,
        "preserve_reasoning_in_assistant_content": False,
        "replace_developer_role_with_system": False,
        "sequential_reasoning_allowed": True,
        "is_responses_native": False,
        "chat_template_kwargs": None,
        "sampling_overrides": None,
        "extra_body": None,
        "default_headers": {},
        "audio_root": None,
        "use_completions_api": False,
        "render_chat_template": False,
        "tokenizer": None,
    }
    assert contract.items() <= defaults.items()


@pytest.mark.parametrize("missing", [*CONFIG, "base_url"])
def test_what_has_no_sensible_default_is_required(missing):
    fields = {"base_url": "u", **CONFIG, "host": "h", "port": 1, "entrypoint": "", "name": "n"}
    del fields[missing]
    with pytest.raises(ValueError, match=missing):
        VLLMModelConfig(**fields)


@pytest.mark.parametrize(("file", "tokens"), [("vllm_model.yaml", False), ("vllm_model_for_training.yaml", True)])
def test_the_shipped_configs_are_valid(file, tokens):
    text = (Path(__file__).parents[1] / "configs" / file).read_text()
    fields = yaml.safe_load(text)["policy_model"]["responses_api_models"]["vllm_model"]
    config = VLLMModelConfig(**fields, host="h", port=1, name="policy_model")
    assert (config.return_token_id_information, config.uses_reasoning_parser) == (tokens, True)
    assert config.model == "${policy_model_name}"


async def test_subclasses_change_converter_request_and_endpoint():
    class Shouting(VLLMConverter):
        def _extract_reasoning_from_content(self, content):
            return [], content.upper()

    class Custom(VLLMModel):
        def get_converter(self):
            return Shouting(return_token_id_information=False)

        def _preprocess_chat_completion_create_params(self, request, body_dict):
            return super()._preprocess_chat_completion_create_params(request, {**body_dict, "user": "hook"})

        def _post_init(self):
            super()._post_init()
            self._clients = self._clients[::-1]

        def _resolve_client(self, request):
            return self._clients[0]

    async with FakeOpenAI(chat("quiet")) as fake:
        fields = {"base_url": ["http://nowhere/v1", fake.base_url], **CONFIG}
        async with running(policy_model=(Custom, fields)) as client:
            _, answer = await ask(client)
    assert answer["output"][0]["content"][0]["text"] == "QUIET"
    assert fake.bodies[0]["user"] == "hook"


def mocked(**config):
    config = VLLMModelConfig(
        host="0.0.0.0", port=1, entrypoint="", name="", base_url="http://u/v1", **{**CONFIG, **config}
    )
    return VLLMModel(config=config, server_client=MagicMock(spec=ServerClient))


def test_the_chat_handler_can_be_patched_on_the_class(monkeypatch):
    completed = NeMoGymChatCompletion(
        id="c",
        object="chat.completion",
        created=1,
        model="m",
        choices=[{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    )
    handler = AsyncMock(return_value=completed)
    monkeypatch.setattr(VLLMModel, "chat_completions", handler)
    answer = TestClient(mocked().setup_webserver()).post("/v1/responses", json=QUESTION)
    assert answer.json()["output"][0]["content"][0]["text"] == "hi"
    assert handler.await_args.args[1].messages[0]["role"] == "user"


def test_clients_can_be_replaced_by_mocks_that_raise_plain_aiohttp_errors():
    model = mocked()
    error = ClientResponseError(request_info=MagicMock(), history=(), status=400)
    error.response_content = b"maximum context length"
    model._clients = [MagicMock(spec=NeMoGymAsyncOpenAI)]
    model._clients[0].create_chat_completion = AsyncMock(side_effect=error)
    answer = TestClient(model.setup_webserver()).post("/v1/chat/completions", json=CHAT_QUESTION)
    assert answer.json()["choices"][0]["finish_reason"] == "length"
