# SPDX-License-Identifier: Apache-2.0
"""The schemas as servers use them, and the client against a real endpoint in this process."""

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any
from unittest.mock import MagicMock

import orjson
import pytest
from aiohttp import ClientResponseError, web
from aiohttp.test_utils import TestServer
from pydantic import BaseModel, ValidationError

from nemo_gym import openai_utils
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._transport.call_errors import InvalidServerReply, ServerDeadlineExceeded, ServerUnreachable
from nemo_gym._transport.retries import RETRIES
from nemo_gym.errors import ServerCallError
from nemo_gym.openai_utils import (
    RATE_LIMIT_ERROR_CODES,
    REQUIRED_TOKEN_METADATA_FIELDS,
    RETRY_ERROR_CODES,
    TOKEN_METADATA_FIELDS,
    NeMoGymAsyncOpenAI,
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseOutputText,
    NeMoGymResponseReasoningItem,
    NeMoGymSummary,
)
from tests.contract import surface_wire

# --- names -----------------------------------------------------------------------------------------------------------


def test_every_name_of_the_contract_is_published():
    schemas = {name.name for name in surface_wire.OPENAI_UTILS if name.name.startswith("NeMoGym")}
    assert schemas <= set(openai_utils.__all__)


def test_published_classes_carry_the_public_module_name():
    classes = [value for name in openai_utils.__all__ if isinstance(value := getattr(openai_utils, name), type)]
    assert {cls.__module__ for cls in classes} == {"nemo_gym.openai_utils"}


def test_the_token_fields_are_those_of_the_contract():
    assert frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs"}) == (
        REQUIRED_TOKEN_METADATA_FIELDS
    )
    assert {"routed_experts"} == TOKEN_METADATA_FIELDS - REQUIRED_TOKEN_METADATA_FIELDS


# --- idioms of servers and their tests -------------------------------------------------------------------------------


def response_with(*output: Any) -> NeMoGymResponse:
    return NeMoGymResponse(
        id="r",
        created_at=0.0,
        model="m",
        object="response",
        output=list(output),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )


MESSAGE = {
    "id": "m",
    "content": [{"annotations": [], "text": "x", "type": "output_text"}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
}


def test_dicts_in_an_output_become_the_classes_that_servers_check_for():
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
    output = response_with(
        MESSAGE,
        {**MESSAGE, **tokens},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
    ).output
    assert [type(item) for item in output] == [
        NeMoGymResponseOutputMessage,
        NeMoGymResponseOutputMessageForTraining,
        NeMoGymResponseFunctionToolCall,
        NeMoGymFunctionCallOutput,
        NeMoGymResponseReasoningItem,
    ]
    assert isinstance(output[1], NeMoGymResponseOutputMessage)
    assert isinstance(output[4].summary[0], NeMoGymSummary)


def test_a_message_built_from_classes_equals_one_read_from_json():
    built = NeMoGymResponseOutputMessage(
        id="m",
        content=[NeMoGymResponseOutputText(annotations=[], text="x", type="output_text")],
        role="assistant",
        status="completed",
        type="message",
    )
    assert response_with(MESSAGE).output == [built]
    assert response_with(built).output[0] is built


def test_create_params_take_a_text_dicts_or_messages():
    assert NeMoGymResponseCreateParamsNonStreaming(input="hi").input == "hi"
    message = NeMoGymEasyInputMessage(role="user", content="hi")
    assert NeMoGymResponseCreateParamsNonStreaming(input=[{"role": "user", "content": "hi"}]).input == [message]
    assert NeMoGymResponseCreateParamsNonStreaming(input=[message]).input[0] is message


def test_a_tool_output_is_built_with_or_without_its_type():
    explicit = NeMoGymFunctionCallOutput(type="function_call_output", call_id="c", output="{}")
    assert explicit == NeMoGymFunctionCallOutput(call_id="c", output="{}")


def test_a_conversation_grows_by_copy():
    body = NeMoGymResponseCreateParamsNonStreaming(input=[{"role": "user", "content": "hi"}])
    longer = body.model_copy(update={"input": [*body.input, *response_with(MESSAGE).output]})
    again = NeMoGymResponseCreateParamsNonStreaming.model_validate(longer.model_dump(exclude_unset=True))
    assert again.input == longer.input
    assert len(body.input) == 1


def test_an_authors_request_class_may_hold_both_schemas():
    class VerifyRequest(BaseModel):
        responses_create_params: NeMoGymResponseCreateParamsNonStreaming
        response: NeMoGymResponse

    class VerifyResponse(VerifyRequest):
        reward: float

    request = VerifyRequest(responses_create_params={"input": "hi"}, response=response_with(MESSAGE))
    reply = VerifyResponse(**request.model_dump(), reward=1.0)
    assert reply.response == request.response
    assert VerifyResponse.model_validate_json(reply.model_dump_json()) == reply


def test_schemas_survive_pickling():
    for value in (response_with(MESSAGE), NeMoGymResponseCreateParamsNonStreaming(input=[MESSAGE])):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_mocked_client_has_the_calls_as_coroutines():
    client = MagicMock(spec=NeMoGymAsyncOpenAI)
    for name in ("models", "chat_completion", "completion", "response", "tokenize"):
        assert iscoroutinefunction(getattr(client, f"create_{name}"))


# --- the client ------------------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """A real endpoint that plays one scripted answer after another, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], web.Response] | Handler] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.pauses: list[float] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(
            (request.method, request.path, dict(request.headers), orjson.loads(body) if body else None)
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request) if iscoroutinefunction(answer) else answer()

    def client(self, **fields: Any) -> NeMoGymAsyncOpenAI:
        return NeMoGymAsyncOpenAI(base_url=f"{self.url}/v1", api_key="key", **fields)


def status(code: int, body: bytes = b"busy", **headers: str) -> Callable[[], web.Response]:
    return lambda: web.Response(
        status=code, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


OK = status(200, b'{"ok": true}', Content_Type="application/json")


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", endpoint.answer)
    really_sleep = asyncio.sleep

    async def sleep(delay: float, result: Any = None) -> Any:
        endpoint.pauses.append(delay)
        return await really_sleep(0, result)

    async with TestServer(app) as server:
        endpoint.url = str(server.make_url("")).rstrip("/")
        monkeypatch.setattr(openai_utils.asyncio, "sleep", sleep)
        yield endpoint
        monkeypatch.undo()
        await close_global_aiohttp_client()


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        ("create_models", "GET", "/v1/models"),
        ("create_chat_completion", "POST", "/v1/chat/completions"),
        ("create_completion", "POST", "/v1/completions"),
        ("create_response", "POST", "/v1/responses"),
        ("create_tokenize", "POST", "/tokenize"),
        ("create_detokenize", "POST", "/detokenize"),
    ],
)
async def test_each_call_goes_to_its_path_with_key_and_headers(endpoint, call, method, path):
    endpoint.answers = [OK]
    sent = {} if method == "GET" else {"model": "m", "input": "hi"}
    assert await getattr(endpoint.client(default_headers={"X-Team": "a"}), call)(**sent) == {"ok": True}
    ((got_method, got_path, headers, body),) = endpoint.requests
    assert (got_method, got_path, body) == (method, path, sent or None)
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer key", "a")


@pytest.mark.parametrize("code", RETRY_ERROR_CODES)
async def test_a_busy_endpoint_is_asked_again(endpoint, code):
    endpoint.answers = [status(code), status(code), OK]
    assert await endpoint.client().create_response(input="hi") == {"ok": True}
    assert len(endpoint.requests) == 3
    assert len(endpoint.pauses) == 2


@pytest.mark.parametrize("code", RATE_LIMIT_ERROR_CODES)
async def test_a_rate_limit_is_retried_a_bounded_number_of_times_and_raised_with_its_body(endpoint, code):
    endpoint.answers = [status(code, b"slow down")]
    with pytest.raises(ClientResponseError) as raised:
        await endpoint.client(max_attempts=4).create_response(input="hi")
    assert (raised.value.status, raised.value.response_content) == (code, b"slow down")
    assert len(endpoint.requests) == 4


async def test_an_internal_error_is_tried_three_times_and_raised_with_its_body(endpoint):
    endpoint.answers = [status(500, b"trace")]
    with pytest.raises(ClientResponseError) as raised:
        await endpoint.client().create_response(input="hi")
    assert (raised.value.status, raised.value.response_content) == (500, b"trace")
    assert len(endpoint.requests) == 3


async def test_a_refusal_is_raised_at_once_with_its_body(endpoint):
    endpoint.answers = [status(400, b"context length exceeded")]
    with pytest.raises(ClientResponseError) as raised:
        await endpoint.client().create_chat_completion(messages=[])
    assert raised.value.response_content == b"context length exceeded"
    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_repeats_the_key_does_not_show_it(endpoint):
    body = b"unknown key sk-very-secret, organisation key org-secret-2"
    headers = {"X-Api-Key": "Bearer org-secret-2", "X-Title": "organisation"}
    for code in (401, 200):
        endpoint.answers = [status(code, body)]
        client = NeMoGymAsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="sk-very-secret", default_headers=headers)
        with pytest.raises(ServerCallError) as raised:
            await client.create_response(input="hi")
        assert raised.value.response_content == b"unknown key ****, organisation key ****"
        assert "secret" not in str(raised.value)


async def test_a_reply_that_is_no_object_does_not_show_the_key_either(endpoint):
    endpoint.answers = [status(200, b'"unknown key sk-very-secret"')]
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="sk-very-secret")
    with pytest.raises(ServerCallError, match="expected an object, got str") as raised:
        await client.create_response(input="hi")
    assert raised.value.response_content == b'"unknown key ****"'
    assert "secret" not in str(raised.value)


async def test_a_key_that_is_none_leaves_an_answer_as_it_is(endpoint):
    endpoint.answers = [status(400, b"the key of the problem")]
    with pytest.raises(ClientResponseError) as raised:
        await endpoint.client().create_response(input="hi")
    assert raised.value.response_content == b"the key of the problem"


async def test_retries_that_are_shown_as_a_count_are_not_logged(endpoint, caplog, monkeypatch):
    counted = []
    sleep = openai_utils.asyncio.sleep

    async def counting(delay: float) -> None:
        counted.append(RETRIES.under_way())
        await sleep(delay)

    monkeypatch.setattr(openai_utils.asyncio, "sleep", counting)
    endpoint.answers = [status(429), status(503), OK]
    with caplog.at_level(logging.WARNING), RETRIES.show():
        await endpoint.client().create_response(input="hi")
    assert counted == [{"429": 1}, {"503": 1}]
    assert RETRIES.under_way() == {}
    assert caplog.text == ""


async def test_the_endpoint_chooses_the_pause(endpoint):
    endpoint.answers = [status(429, Retry_After="7"), status(429), OK]
    await endpoint.client().create_response(input="hi")
    assert endpoint.pauses[0] == 7
    assert 1 <= endpoint.pauses[1] <= 2


async def test_a_pause_that_would_outlast_the_deadline_is_not_begun(endpoint):
    endpoint.answers = [status(429, b"slow down", Retry_After="50")]
    with pytest.raises(ClientResponseError) as raised:
        await endpoint.client(timeout_s=30).create_response(input="hi")
    assert raised.value.response_content == b"slow down"
    assert endpoint.pauses == []


async def test_an_answer_that_never_comes_ends_at_the_deadline(endpoint):
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    endpoint.answers = [hang]
    with pytest.raises(ServerDeadlineExceeded, match=r"POST .*/v1/responses gave no answer within 0\.05 s"):
        await endpoint.client(timeout_s=0.05).create_response(input="hi")
    release.set()


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"<html>502 Bad Gateway</html>"),
        ("application/json", b'{"output": [{"type": "mess'),
        ("application/json", b"[1, 2]"),
        ("application/json", b"null"),
        ("application/json", b""),
    ],
)
async def test_a_reply_that_is_no_json_object_is_named_with_its_first_bytes(endpoint, content_type, body):
    endpoint.answers = [status(200, body, Content_Type=content_type)]
    with pytest.raises(InvalidServerReply) as raised:
        await endpoint.client().create_response(input="hi")
    for known in ("/v1/responses", "200", content_type, body.decode()):
        assert known in str(raised.value)
    assert raised.value.response_content == body


async def test_an_answer_that_breaks_off_is_an_unreachable_server(endpoint):
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"half": ')
        request.transport.close()
        return response

    endpoint.answers = [break_off]
    with pytest.raises(ServerUnreachable, match="the answer broke off"):
        await endpoint.client().create_response(input="hi")


async def test_retries_are_logged_and_the_key_is_not(endpoint, caplog):
    endpoint.answers = [status(503), OK]
    client = endpoint.client()
    with caplog.at_level(logging.DEBUG):
        await client.create_response(input="hi")
    assert "answered 503 (attempt 1)" in caplog.text
    assert "Bearer" not in caplog.text
    assert "'key'" not in repr(client)


def test_a_client_without_attempts_is_refused():
    with pytest.raises(ValidationError):
        NeMoGymAsyncOpenAI(base_url="u", api_key="k", max_attempts=0)
