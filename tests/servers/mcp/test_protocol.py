# SPDX-License-Identifier: Apache-2.0
"""MCP messages and their replies, without a transport."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._servers.mcp.protocol import PROTOCOL_VERSIONS, MCPTool, ToolResult, ToolSession, answer_message

ECHO = MCPTool("echo", "/echo", "Say it again.", {"type": "object", "properties": {"text": {"type": "string"}}})


async def run(tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult(f"{tool.name} {dict(arguments)}")


SESSION = ToolSession("parrot", "1.0", [ECHO], run)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


async def result(method: str, **params: Any) -> Any:
    reply = await answer_message(request(method, **params), SESSION)
    assert reply is not None
    assert (reply["jsonrpc"], reply["id"]) == ("2.0", 7)
    return reply["result"]


async def error(message: Any) -> Any:
    reply = await answer_message(message, SESSION)
    assert reply is not None
    return reply["error"]


@pytest.mark.parametrize("version", PROTOCOL_VERSIONS)
async def test_initialize_agrees_on_the_version_that_the_client_asks_for(version: str):
    agreed = await result("initialize", protocolVersion=version, capabilities={}, clientInfo={})
    assert agreed == {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "parrot", "version": "1.0"},
    }


@pytest.mark.parametrize("version", ["1999-01-01", None, 3])
async def test_initialize_offers_the_latest_version_to_a_client_with_another(version: Any):
    assert (await result("initialize", protocolVersion=version))["protocolVersion"] == PROTOCOL_VERSIONS[-1]


async def test_ping_is_answered_with_nothing():
    assert await result("ping") == {}


async def test_tools_are_listed_with_name_description_and_schema():
    assert await result("tools/list") == {
        "tools": [{"name": "echo", "description": "Say it again.", "inputSchema": dict(ECHO.input_schema)}]
    }


async def test_a_tool_is_run_with_its_arguments():
    assert await result("tools/call", name="echo", arguments={"text": "hi"}) == {
        "content": [{"type": "text", "text": "echo {'text': 'hi'}"}],
        "isError": False,
    }


@pytest.mark.parametrize("params", [{"name": "echo"}, {"name": "echo", "arguments": None}])
async def test_arguments_may_be_left_out(params: dict[str, Any]):
    assert (await result("tools/call", **params))["content"][0]["text"] == "echo {}"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (request("tools/call", name="echo", arguments=["hi"]), -32602),
        ({**request("ping"), "params": [1]}, -32602),
        (request("server/discover"), -32601),
        (request("resources/list"), -32601),
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, -32600),
        ({"id": 1, "method": "ping"}, -32600),
        ("ping", -32600),
        ([], -32600),
    ],
)
async def test_what_cannot_be_served_is_a_json_rpc_error(message: Any, code: int):
    assert (await error(message))["code"] == code


@pytest.mark.parametrize(("params", "name"), [({"name": "fly"}, "'fly'"), ({}, "None")])
async def test_the_model_is_told_of_a_tool_that_is_not_there(params: dict[str, Any], name: str):
    text = f"Unknown tool {name}; tools of this session: 'echo'"
    assert await result("tools/call", **params) == {"content": [{"type": "text", "text": text}], "isError": True}


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
    ],
)
async def test_notifications_and_responses_get_no_reply(message: dict[str, Any]):
    assert await answer_message(message, SESSION) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
methods = st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "other"]) | json_values


@settings(max_examples=50, deadline=None)
@given(
    request_id=st.integers() | st.text(),
    method=methods,
    params=st.dictionaries(st.sampled_from(["name", "arguments", "protocolVersion"]), json_values) | json_values,
)
async def test_every_request_with_an_id_gets_one_reply_with_that_id(request_id: Any, method: Any, params: Any):
    reply = await answer_message({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, SESSION)
    assert reply is not None
    assert reply["id"] == request_id
    assert ("result" in reply) != ("error" in reply)
