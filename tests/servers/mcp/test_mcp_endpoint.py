# SPDX-License-Identifier: Apache-2.0
"""MCP over HTTP: methods, statuses, headers and bodies, and what changes at `/seed_session` and `/verify`."""

import math
from collections.abc import Mapping
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given, settings, strategies as st
from starlette.types import Message, Receive, Scope, Send

from nemo_gym._servers.mcp.mcp_endpoint import (
    McpEndpoint,
    SessionEndpoints,
    read_body,
    rename_calls,
    replay_body,
    restore_names,
)
from nemo_gym._servers.mcp.protocol import SESSION_TOKEN_HEADER, MCPTool, ToolResult, ToolSession, dump_json, parse_json
from nemo_gym._servers.mcp.session import Grant, GrantSigner

SIGNER = GrantSigner("secret")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def run(tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult("done")


ECHO = MCPTool("echo", "/echo")


def open_session(grant: Grant | None) -> ToolSession:
    return ToolSession(grant.session_id if grant else "nobody", "1.0", [ECHO], run)


def client(token: str | None = SIGNER.sign(Grant("the session", None))) -> httpx.AsyncClient:
    headers = {} if token is None else {SESSION_TOKEN_HEADER: token}
    transport = httpx.ASGITransport(McpEndpoint(SIGNER, open_session))
    return httpx.AsyncClient(transport=transport, base_url="http://mcp", headers=headers)


async def post(content: Any, **headers: str) -> httpx.Response:
    async with client() as http:
        return await http.post("/mcp", json=content, headers={name.replace("_", "-"): v for name, v in headers.items()})


async def test_a_request_is_answered_with_json():
    response = await post(PING)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_the_session_is_that_of_the_token():
    response = await post({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
    assert response.json()["result"]["serverInfo"]["name"] == "the session"


async def test_a_notification_is_accepted_without_a_body():
    response = await post(INITIALIZED)
    assert (response.status_code, response.content) == (202, b"")


async def test_a_batch_is_answered_with_the_replies_to_its_requests():
    response = await post([PING, INITIALIZED, {**PING, "id": 2}])
    assert [reply["id"] for reply in response.json()] == [1, 2]
    assert (await post([INITIALIZED])).status_code == 202


async def test_there_is_no_stream_to_get():
    async with client() as http:
        response = await http.get("/mcp")
    assert (response.status_code, response.headers["allow"]) == (405, "POST, DELETE")


async def test_there_is_nothing_to_end_so_delete_succeeds():
    async with client() as http:
        assert (await http.delete("/mcp")).status_code == 200


@pytest.mark.parametrize("token", [None, "", "made-up", GrantSigner("another").sign(Grant("the session", None))])
async def test_without_a_valid_token_everything_but_a_call_is_answered(token: str | None):
    async with client(token) as http:
        greeted = await http.post("/mcp", json={**PING, "method": "initialize"})
        noted = await http.post("/mcp", json=INITIALIZED)
        listed = await http.post("/mcp", json={**PING, "method": "tools/list"})
        called = await http.post("/mcp", json={**PING, "method": "tools/call", "params": {"name": "echo"}})
    assert [response.status_code for response in (greeted, noted, listed, called)] == [200, 202, 200, 200]
    assert greeted.json()["result"]["serverInfo"]["name"] == "nobody"
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["echo"]
    assert called.json()["result"]["isError"] is True
    assert "seed_session" in called.json()["result"]["content"][0]["text"]


async def test_with_a_token_the_call_is_run():
    response = await post({**PING, "method": "tools/call", "params": {"name": "echo"}})
    assert response.json()["result"] == {"content": [{"type": "text", "text": "done"}], "isError": False}


@pytest.mark.parametrize(("content", "code"), [("{", -32700), ("", -32700), ("7", -32600), ("[]", -32600)])
async def test_what_is_no_message_is_a_bad_request(content: str, code: int):
    async with client() as http:
        response = await http.post("/mcp", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code
    assert response.json()["id"] is None


async def test_a_protocol_version_without_handshake_is_refused_with_those_there_are():
    response = await post(PING, mcp_protocol_version="2026-07-28")
    assert response.status_code == 400
    assert response.json()["id"] == 1
    assert response.json()["error"]["code"] == -32022
    assert response.json()["error"]["data"]["supported"][-1] == "2025-11-25"


async def test_a_handshake_may_come_with_any_version():
    response = await post({"jsonrpc": "2.0", "id": 1, "method": "initialize"}, mcp_protocol_version="2026-07-28")
    assert response.json()["result"]["protocolVersion"] == "2025-11-25"


# --- bodies -----------------------------------------------------------------------------------------------------------


def client_that_sends(*messages: Message):
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return receive


async def test_a_body_in_parts_is_read_to_its_end():
    receive = client_that_sends(
        {"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}
    )
    assert await read_body(receive) == b"ab"


async def test_a_client_that_hangs_up_ends_the_body():
    receive = client_that_sends({"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"})
    assert await read_body(receive) == b"a"


async def test_a_replayed_body_comes_once_and_then_the_client_is_heard_again():
    receive = replay_body(b"ab", client_that_sends({"type": "http.disconnect"}))
    assert await receive() == {"type": "http.request", "body": b"ab", "more_body": False}
    assert await receive() == {"type": "http.disconnect"}


def test_json_may_hold_what_handlers_take():
    assert math.isnan(parse_json(b"NaN"))
    assert parse_json(dump_json({"n": 10**30, "t": "é"})) == {"n": 1e30, "t": "é"}


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff"])
def test_what_is_not_json_is_a_value_error(raw: bytes):
    with pytest.raises(ValueError):
        parse_json(raw)


# --- `/seed_session` and `/verify` ------------------------------------------------------------------------------------


def plain(name: str) -> str:
    return name.removeprefix("mcp__weather__")


def verify_request(*items: Any, **fields: Any) -> bytes:
    return orjson.dumps({**fields, "response": {"output": list(items)}})


def function_call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": "{}", "call_id": "c"}


def test_function_calls_lose_the_namespace_of_the_server():
    body = verify_request(function_call("mcp__weather__now"), function_call("mcp__other__now"))
    output = orjson.loads(rename_calls(body, plain))["response"]["output"]
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
    assert rename_calls(body, plain) is body


@given(names=st.lists(st.sampled_from(["mcp__weather__now", "mcp__other__now", "now"])))
def test_a_reply_names_the_calls_as_the_request_did(names: list[str]):
    asked = verify_request(*({**function_call(name), "call_id": str(place)} for place, name in enumerate(names)))
    assert orjson.loads(restore_names(rename_calls(asked, plain), asked, plain)) == orjson.loads(asked)


@pytest.mark.parametrize("reply", [b"no JSON", b"[]", b'{"reward": 1.0}', b'{"response": null}'])
def test_a_reply_without_calls_stays_byte_for_byte(reply: bytes):
    assert restore_names(reply, verify_request(function_call("mcp__weather__now")), plain) is reply


def test_numbers_that_plain_json_cannot_hold_survive():
    body = b'{"gold": 1e400, "nan": NaN, ' + verify_request(function_call("mcp__weather__now"))[1:]
    changed = orjson.loads(rename_calls(body, plain))
    assert changed["response"]["output"][0]["name"] == "now"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["mcp__weather__", "mcp__other__", ""]).flatmap(lambda p: st.text().map(p.__add__))))
def test_names_are_plain_after_one_pass_and_nothing_else_changes(names: list[str]):
    body = verify_request(*map(function_call, names), task={"name": "mcp__weather__kept"})
    assert orjson.loads(rename_calls(body, plain)) == orjson.loads(
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
