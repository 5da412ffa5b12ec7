# SPDX-License-Identifier: Apache-2.0
"""The official MCP client against a real server on a port: what an agent with MCP of its own will do."""

import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel, PrivateAttr

from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.testing import build_server


class Amount(BaseModel):
    by: int = 1


class CounterServer(SimpleResourcesServer):
    """One counter per session."""

    _counts: Counter[str] = PrivateAttr(default_factory=Counter)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def add(self, request: Request, body: Amount) -> dict[str, int]:
        """Add to the counter."""
        session = request.session["session_id"]
        self._counts[session] += body.by
        return {"count": self._counts[session]}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The base URL of a counter server, for as long as the context lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = build_server(CounterServer, name="counter", host="127.0.0.1", port=port, expose_tools_over_mcp=True)
    app = server.build_complete_app(server.server_client.global_config_dict)
    async with serve_inline([InlineServer("counter", "127.0.0.1", port, app)]):
        yield f"http://127.0.0.1:{port}"


async def seeded(base_url: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(base_url=base_url) as rest:
        metadata: dict[str, Any] = (await rest.post("/seed_session", json={})).json()["mcp"]
        return metadata


@asynccontextmanager
async def connected(base_url: str, metadata: Mapping[str, Any], mode: str = "auto") -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=metadata["headers"]) as http:
        transport = streamable_http_client(f"{base_url}{metadata['url_path']}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_finds_the_tools_and_its_calls_share_one_session(mode: str):
    async with served() as url, connected(url, await seeded(url), mode) as client:
        listed = (await client.list_tools()).tools
        assert [(tool.name, tool.description) for tool in listed] == [("add", "Add to the counter.")]
        assert listed[0].input_schema["properties"]["by"]["type"] == "integer"
        first = await client.call_tool("add", {"by": 2})
        second = await client.call_tool("add", {})
    assert [first.content[0].text, second.content[0].text] == ['{"count":2}', '{"count":3}']
    assert not first.is_error


async def test_a_session_outlives_its_connection():
    async with served() as url:
        metadata = await seeded(url)
        for expected in ('{"count":1}', '{"count":2}'):
            async with connected(url, metadata) as client:
                assert (await client.call_tool("add", {})).content[0].text == expected


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_without_a_token_finds_the_tools_and_is_told_what_a_call_lacks(mode: str):
    async with served() as url, connected(url, {"headers": {}, "url_path": "/mcp"}, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add"]
        refused = await client.call_tool("add", {"by": 2})
    assert refused.is_error
    assert "the header X-NeMo-Gym-Session-Token is missing" in refused.content[0].text
