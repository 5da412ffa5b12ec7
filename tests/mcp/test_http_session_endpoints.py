# SPDX-License-Identifier: Apache-2.0
"""What MCP changes at `/seed_session` and `/verify`, and what it leaves alone."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from nemo_gym._mcp.http import SessionEndpoints, restore_tool_names


def plain(name: str) -> str:
    return name.removeprefix("mcp__weather__")


def verify_request(*items: Any, **fields: Any) -> bytes:
    return orjson.dumps({**fields, "response": {"output": list(items)}})


def function_call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": "{}", "call_id": "c"}


def test_function_calls_lose_the_namespace_of_the_server():
    body = verify_request(function_call("mcp__weather__now"), function_call("mcp__other__now"))
    output = orjson.loads(restore_tool_names(body, plain))["response"]["output"]
    assert [item["name"] for item in output] == ["now", "mcp__other__now"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"mcp__ is not JSON",
        b'["mcp__"]',
        b'{"response": "mcp__"}',
        b'{"response": {"output": "mcp__"}}',
        b'{"response": {"output": ["mcp__weather__now", {"type": "function_call", "name": 7}]}}',
        verify_request({"type": "message", "name": "mcp__weather__now"}),
    ],
)
def test_what_holds_no_call_of_ours_stays_byte_for_byte(body: bytes):
    assert restore_tool_names(body, plain) is body


def test_numbers_that_plain_json_cannot_hold_survive():
    body = b'{"gold": 1e400, "nan": NaN, ' + verify_request(function_call("mcp__weather__now"))[1:]
    changed = orjson.loads(restore_tool_names(body, plain))
    assert changed["response"]["output"][0]["name"] == "now"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["mcp__weather__", "mcp__other__", ""]).flatmap(lambda p: st.text().map(p.__add__))))
def test_names_are_plain_after_one_pass_and_nothing_else_changes(names: list[str]):
    body = verify_request(*map(function_call, names), task={"name": "mcp__weather__kept"})
    assert orjson.loads(restore_tool_names(body, plain)) == orjson.loads(
        verify_request(*(function_call(plain(name)) for name in names), task={"name": "mcp__weather__kept"})
    )


async def exchange(
    answer: bytes, *, path: str = "/seed_session", status: int = 200, body: bytes = b"{}"
) -> list[Message]:
    """The messages that the middleware sends around an app that answers with `answer`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == body
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), (b"x", b"y")]}
        )
        await send({"type": "http.response.body", "body": answer[:1], "more_body": True})
        await send({"type": "http.response.body", "body": answer[1:]})

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    endpoints = SessionEndpoints(app, metadata=lambda sid, seed: {"sid": sid, "seed": seed}, tool_name=plain)
    session = {"session_id": "s1"}
    await endpoints({"type": "http", "method": "POST", "path": path, "headers": [], "session": session}, receive, send)
    return sent


async def test_the_reply_to_seed_session_gains_the_metadata_and_fits_its_length():
    start, content = await exchange(b'{"greeting":"hello"}', body=b'{"task":1}')
    assert orjson.loads(content["body"]) == {"greeting": "hello", "mcp": {"sid": "s1", "seed": {"task": 1}}}
    assert start["headers"] == [(b"x", b"y"), (b"content-length", str(len(content["body"])).encode())]


@pytest.mark.parametrize("answer", [b"null", b""])
async def test_a_seed_session_that_answers_nothing_gains_the_metadata_too(answer: bytes):
    _, content = await exchange(answer)
    assert orjson.loads(content["body"]) == {"mcp": {"sid": "s1", "seed": {}}}


@pytest.mark.parametrize("body", [b"", b"[1]"])
async def test_a_seed_request_that_is_no_object_counts_as_empty(body: bytes):
    _, content = await exchange(b"{}", body=body)
    assert orjson.loads(content["body"])["mcp"]["seed"] == {}


async def test_a_seed_session_that_answers_no_object_is_an_error_that_says_so():
    with pytest.raises(TypeError, match=r"/seed_session must answer with an object .*, not \[1\]"):
        await exchange(b"[1]")


async def test_an_error_of_seed_session_is_passed_on():
    start, content = await exchange(b'{"detail":"no"}', status=422)
    assert (start["status"], content["body"]) == (422, b'{"detail":"no"}')


async def test_other_endpoints_are_not_touched():
    assert [message.get("body") for message in await exchange(b'{"a":1}', path="/tool")] == [None, b"{", b'"a":1}']
