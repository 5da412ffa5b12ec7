# SPDX-License-Identifier: Apache-2.0
"""MCP over HTTP: methods, statuses and headers."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from nemo_gym._mcp.http import McpEndpoint
from nemo_gym._mcp.protocol import ToolResult, ToolSession
from nemo_gym._mcp.session import Grant, GrantSigner
from nemo_gym._mcp.types import SESSION_TOKEN_HEADER, MCPTool

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
