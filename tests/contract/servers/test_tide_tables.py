# SPDX-License-Identifier: Apache-2.0
"""An MCP client that others wrote connects before there is a session, lists the tools, and calls one too early."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.mcp_auto_exposure import TOKEN_HEADER, bind_route, install_auto_exposure, maybe_auto_expose
from nemo_gym.server_utils import ServerClient
from tests.contract.servers.tide_tables import TideTables, TideTablesConfig


def tide_tables(**settings: Any) -> TideTables:
    config = TideTablesConfig(host="0.0.0.0", port=8080, entrypoint="", name="tides", **settings)
    return TideTables(config=config, server_client=MagicMock(spec=ServerClient))


class EagerClient:
    """Speaks JSON-RPC over one connection, with the token if it has one."""

    def __init__(self, http: TestClient) -> None:
        self.http, self.headers, self.sent = http, {"accept": "application/json, text/event-stream"}, 0

    def send(self, method: str, **params: Any) -> Any:
        self.sent += 1
        message = {"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}
        reply = self.http.post("/mcp", json=message, headers=self.headers)
        assert reply.status_code == 200, reply.text
        assert reply.json()["id"] == self.sent
        return reply.json()["result"]

    def notify(self, method: str) -> int:
        return self.http.post("/mcp", json={"jsonrpc": "2.0", "method": method}, headers=self.headers).status_code


@pytest.fixture
def server() -> TideTables:
    return tide_tables()


@pytest.fixture
def http(server: TideTables) -> TestClient:
    app = server.setup_webserver()
    tools = maybe_auto_expose(server, app)
    assert tools is not None
    assert list(tools) == ["high_tide"]
    return TestClient(app)


def test_a_client_without_a_token_gets_as_far_as_the_call(server: TideTables, http: TestClient) -> None:
    client = EagerClient(http)
    greeted = client.send("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "eager"})
    assert greeted["serverInfo"]["name"] == "tides"
    assert client.notify("notifications/initialized") == 202
    (tool,) = client.send("tools/list")["tools"]
    assert (tool["name"], tool["inputSchema"]["required"]) == ("high_tide", ["harbor"])

    early = client.send("tools/call", name="high_tide", arguments={"harbor": "Bergen"})
    assert early["isError"] is True
    assert server.asked == {}

    client.headers |= http.post("/seed_session", json={}).json()["mcp"]["headers"]
    assert TOKEN_HEADER in client.headers
    called = client.send("tools/call", name="high_tide", arguments={"harbor": "Bergen"})
    assert called == {"content": [{"type": "text", "text": '{"asked":["Bergen"]}'}], "isError": False}
    assert client.send("tools/call", name="low_tide", arguments={})["isError"] is True
    client.headers[TOKEN_HEADER] += "x"
    assert client.send("tools/call", name="high_tide", arguments={"harbor": "Bergen"})["isError"] is True


def test_the_tools_are_returned_to_whoever_installs_them() -> None:
    server = tide_tables(expose_tools_over_mcp=False)
    app = server.setup_webserver()
    assert maybe_auto_expose(server, app) is None
    (route,) = [route for route in app.routes if getattr(route, "path", "") == "/high_tide"]
    assert install_auto_exposure(server, app) == {"high_tide": bind_route(route)}
