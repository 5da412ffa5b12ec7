# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from fastapi import HTTPException, Request

from nemo_gym.base_responses_api_model import (
    Body,
    CaptureStore,
    SimpleResponsesAPIModel,
    _CaptureMiddleware,
    read_model_call_records,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.testing import build_server, reasoning, reply, running, tool_call
from nemo_gym.token_id_capture import TokenCaptureStore
from tests.wire.sse_server import parse_events

COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hei"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


class Parrot(SimpleResponsesAPIModel):
    """Says back what it was told; `boom` makes it fail."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        text = body.input if isinstance(body.input, str) else str(body.input[-1].content)
        if "boom" in text:
            raise ConnectionError("the backend is down")
        if "busy" in text:
            raise HTTPException(429, "slow down")
        return reply(reasoning("hm"), text, tool_call("look", {"at": text}))

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        if "boom" in str(body.messages):
            raise ConnectionError("the backend is down")
        return NeMoGymChatCompletion.model_validate(COMPLETION)


class WithRequest(Parrot):
    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()):
        return reply(request.session[SESSION_ID_KEY])


def events(text: str) -> list[dict]:
    return [json.loads(event.data) for event in parse_events(text.encode()) if event.data != "[DONE]"]


async def post(path: str, body: dict, model=Parrot, **kwargs):
    async with running(model=model) as client:
        answer = await client.post("model", path, json=body, **kwargs)
        return answer.status, await answer.text(), answer.content_type


async def test_a_response_is_one_json_object():
    status, text, kind = await post("/v1/responses", {"input": "hei"})
    assert (status, kind) == (200, "application/json")
    assert NeMoGymResponse.model_validate_json(text).output_text == "hei"


@pytest.mark.parametrize(
    ("body", "where"),
    [({"inputs": "x"}, ["body", "inputs"]), ({"input": 1}, ["body", "input"]), ({}, ["body", "input"])],
)
async def test_a_request_that_does_not_fit_is_a_422_in_fastapis_shape(body, where):
    status, text, _ = await post("/v1/responses", body)
    assert status == 422
    assert where in [problem["loc"][:2] for problem in json.loads(text)["detail"]]


async def test_a_handler_may_ask_for_the_request():
    async with running(model=WithRequest) as client:
        first = await client.post("model", "/v1/responses", json={"input": "a"})
        second = await client.post("model", "/v1/responses", json={"input": "b"}, cookies=first.cookies)
        ids = {NeMoGymResponse.model_validate(await answer.json()).output_text for answer in (first, second)}
    assert len(ids) == 1


async def test_a_streamed_response_is_the_reply_as_events():
    status, text, kind = await post("/v1/responses", {"input": "hei", "stream": True})
    kinds = [event["type"] for event in events(text)]
    assert (status, kind, kinds[0], kinds[-1]) == (200, "text/event-stream", "response.created", "response.completed")
    assert kinds.count("response.output_item.done") == 3
    assert NeMoGymResponse.model_validate(events(text)[-1]["response"]).output_text == "hei"


async def test_what_only_streaming_clients_send_is_left_out():
    status, text, _ = await post("/v1/responses", {"input": "hei", "stream": True, "client_metadata": {"x": 1}})
    assert (status, events(text)[-1]["type"]) == (200, "response.completed")


async def test_a_backend_failure_within_a_stream_is_an_event():
    status, text, _ = await post("/v1/responses", {"input": "boom", "stream": True})
    last = events(text)[-1]
    assert (status, last["type"]) == (200, "response.failed")
    assert "the backend is down" in last["response"]["error"]["message"]


@pytest.mark.parametrize(("text", "traced"), [("boom", True), ("busy", False)])
async def test_a_failure_within_a_stream_is_logged_with_a_traceback_unless_it_was_meant(text, traced, caplog):
    _, said, _ = await post("/v1/responses", {"input": text, "stream": True})
    (record,) = [record for record in caplog.records if "a streamed call failed" in record.message]
    assert bool(record.exc_info) is traced
    assert ("the backend is down" if traced else "slow down") in record.getMessage()
    assert events(said)[-1]["type"] == "response.failed"


async def test_a_backend_failure_without_a_stream_is_a_500():
    status, text, _ = await post("/v1/responses", {"input": "boom"})
    assert (status, json.loads(text)) == (500, "ConnectionError('the backend is down')")


async def test_chat_completions_come_whole_or_as_chunks():
    asked = {"messages": [{"role": "user", "content": "hei"}]}
    status, text, _ = await post("/v1/chat/completions", asked)
    assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, "hei")
    _, text, kind = await post(
        "/v1/chat/completions", {**asked, "stream": True, "stream_options": {"include_usage": True}}
    )
    chunks = events(text)
    content = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert (kind, content, chunks[-1]["usage"]["total_tokens"]) == ("text/event-stream", "hei", 4)
    assert text.rstrip().endswith("data: [DONE]")


class Crooked(Parrot):
    """Its endpoint sends what is no chat completion, and it cannot ask for everything."""

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        converter = ResponsesConverter(return_token_id_information=False)
        match body.messages[0]["content"]:
            case "no message":
                reply = {**COMPLETION, "choices": [{"index": 0, "finish_reason": "stop"}]}
            case "no choices":
                converter.chat_completion_to_response(
                    NeMoGymResponseCreateParamsNonStreaming(input="x"), {**COMPLETION, "choices": []}
                )
            case "two":
                converter.chat_completion_to_responses_create_params(body.model_copy(update={"n": 2}))
            case "bad":
                NeMoGymResponseCreateParamsNonStreaming(input="x", temperature="hot")
        return NeMoGymChatCompletion.model_validate(reply)


@pytest.mark.parametrize(
    ("content", "expected", "said"),
    [
        ("no message", 502, "choices.0.message: Field required"),
        ("no choices", 502, "it has no choices"),
        ("two", 422, "n=2"),
        ("bad", 422, "valid number"),
    ],
)
async def test_a_chat_completion_that_misses_a_schema_is_no_crash(content, expected, said):
    asked = {"messages": [{"role": "user", "content": content}]}
    status, text, kind = await post("/v1/chat/completions", asked, Crooked)
    assert (status, kind) == (expected, "application/json")
    assert said in text


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": 1},
        {"messages": [{"role": "ghost"}]},
        {"messages": [{"role": "user", "content": [{"type": "ghost"}]}]},
        {"messages": [{"role": "user"}], "stream": True, "stream_options": 7},
        {"messages": [], "tools": [1], "stream": True},
        {"messages": [], "stream": "yes"},
        {"messages": [], "stop": {"a": 1}, "tool_choice": {"type": 1}},
    ],
)
async def test_a_chat_request_that_does_not_fit_is_a_422(fields):
    status, text, _ = await post("/v1/chat/completions", fields)
    assert status == 422
    inputs = [problem["input"] for problem in json.loads(text)["detail"]]
    assert not any("stream" in given or "stream_options" in given for given in inputs if isinstance(given, dict))


async def test_a_chat_failure_within_a_stream_is_an_event():
    status, text, _ = await post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "boom"}], "stream": True}
    )
    assert (status, "the backend is down" in events(text)[0]["error"]["message"]) == (200, True)


MESSAGES = {"model": "claude", "max_tokens": 10, "messages": [{"role": "user", "content": "hei"}]}


async def test_anthropic_messages_are_answered_by_way_of_responses():
    status, text, _ = await post("/v1/messages", MESSAGES)
    message = json.loads(text)
    assert (status, message["type"], message["stop_reason"]) == (200, "message", "tool_use")
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]


async def test_anthropic_messages_are_streamed_on_demand():
    _, text, kind = await post("/v1/messages", {**MESSAGES, "stream": True})
    kinds = [event["type"] for event in events(text)]
    assert (kind, kinds[0], kinds[-1]) == ("text/event-stream", "message_start", "message_stop")


async def test_a_call_made_for_a_rollout_is_captured_when_observability_is_on(tmp_path):
    settings = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    async with running(global_config=settings, model=Parrot) as client:
        answer = await client.post("model", "/ng-rollout/7-0/v1/responses", json={"input": "hei"})
        assert answer.status == 200
    (record,) = read_model_call_records(CaptureStore(tmp_path), "7-0")
    assert (record.dialect, record.status_code, record.request) == ("responses", 200, {"input": "hei"})
    assert record.model_ref == ModelServerRef(type="responses_api_models", name="model")


def test_capture_stands_outside_of_everything_else():
    assert build_server(Parrot).setup_webserver().user_middleware[0].cls is _CaptureMiddleware


async def test_the_rollout_prefix_is_understood_without_observability():
    async with running(model=Parrot) as client:
        assert (await client.post("model", "/ng-rollout/7-0/v1/responses", json={"input": "hei"})).status == 200


TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


class WithTokens(Parrot):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        answer = reply("hei").model_dump()
        answer["output"][-1] |= TOKENS
        return NeMoGymResponse.model_validate(answer)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        message = {**COMPLETION["choices"][0]["message"], **TOKENS}
        return NeMoGymChatCompletion.model_validate(
            {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "message": message}]}
        )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hei"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hei"}]}),
        ("/v1/messages", MESSAGES),
    ],
)
async def test_token_ids_are_captured_in_every_dialect(path, body, stream, tmp_path):
    config = {"token_id_capture": {"enabled": True, "dir": str(tmp_path)}}
    async with running(global_config=config, model=WithTokens) as client:
        await client.post("model", f"/ng-rollout/1-0/training-token-capture{path}", json={**body, "stream": stream})
    snapshot = await TokenCaptureStore(tmp_path).freeze("1-0")
    assert snapshot.complete, snapshot.incomplete_reasons
    (entry,) = snapshot.entries
    assert entry.model_dump(include=set(TOKENS)) == TOKENS
    assert "hei" in str(entry.output_items[entry.token_item_index])
