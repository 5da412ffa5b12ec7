# SPDX-License-Identifier: Apache-2.0
"""Requests that are meant to exhaust a server: JSON without a bottom, headers without an end or too slow."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from fastapi import APIRouter, Body, FastAPI, Request
from omegaconf import OmegaConf
from pydantic import BaseModel

from nemo_gym._servers.http import listening
from nemo_gym._servers.http.listening import MAX_HEAD_BYTES
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.testing import build_server, reply, running, scripted_model, tool_call
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.support.clock import skip_time
from tests.support.raw_http import PATIENCE_S, ask, read_reply, send_raw

DEPTHS = (202, 254, 300, 900, 1000, 1024, 100_000)


class Bare(SimpleResourcesServer):
    """Has no tools of its own."""

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class Note(BaseModel):
    text: object = None


class Notes(Bare):
    """Reads JSON in all the ways that handlers do."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.post("/typed")
        async def typed(body: Note) -> dict[str, str]:
            return {}

        @app.post("/any")
        async def anything(body: object = Body()) -> dict[str, str]:
            return {}

        @app.post("/by_path/{name}")
        async def by_path(name: str, body: Note) -> dict[str, str]:
            return {}

        @app.post("/raw")
        async def raw(request: Request) -> dict[str, str]:
            await request.json()
            return {}

        @app.post("/raw_by_path/{name}")
        async def raw_by_path(name: str, request: Request) -> dict[str, str]:
            await request.json()
            return {}

        foreign = APIRouter()

        @foreign.post("/foreign")
        async def read_in_foreign_route(request: Request) -> dict[str, str]:
            await request.json()
            return {}

        app.include_router(foreign)

        @app.post("/slow")
        async def slow() -> dict[str, str]:
            await asyncio.sleep(10)
            return {}

        return app


@pytest.fixture
async def port(unused_tcp_port):
    server = build_server(Notes, name="notes", host="127.0.0.1", port=unused_tcp_port, expose_tools_over_mcp=False)
    app = server.build_complete_app(server.server_client.global_config_dict)
    async with serve_inline([InlineServer("notes", "127.0.0.1", unused_tcp_port, app)]):
        yield unused_tcp_port


def nested(depth: int) -> bytes:
    return b'{"text":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.fault(
    place="Server",
    fault="A body of JSON that is nested up to 100,000 levels deep",
    outcome="422 says how deep it may be; never a 500.",
)
async def test_json_without_a_bottom_is_a_422(port):
    kind = {"content_type": "application/json"}
    for depth in DEPTHS:
        for path in ("/typed", "/any", "/by_path/x", "/raw", "/raw_by_path/x", "/verify", "/aggregate_metrics"):
            reply = await ask(port, "POST", path, nested(depth), **kind)
            assert (depth, path, reply.status) == (depth, path, 422)
        assert b"nested more than 200 levels deep" in (await ask(port, "POST", "/typed", nested(depth), **kind)).body
        assert (await ask(port, "POST", "/foreign", nested(depth), **kind)).status in (200, 422)
    assert (await ask(port, "POST", "/typed", nested(200), **kind)).status == 200


@pytest.mark.fault(
    place="Server",
    fault="A body with half of a surrogate pair, which no text can hold, or an integer of thousands of digits",
    outcome="422 says what is wrong with it; never a 500.",
)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (rb'"\ud800"', "half of a surrogate pair"),
        (rb'{"\udc00": 1}', "half of a surrogate pair"),
        (b'"\xed\xa0\x80"', "half of a surrogate pair"),
        (b"1" * 5000, "too many digits"),
    ],
)
async def test_values_that_no_reply_could_hold_are_a_422(port, value, said):
    for path in ("/typed", "/any", "/by_path/x", "/raw", "/raw_by_path/x", "/verify", "/aggregate_metrics"):
        reply = await ask(port, "POST", path, b'{"text": %b}' % value, content_type="application/json")
        assert (path, reply.status, said in str(reply.detail)) == (path, 422, True)
    whole = rb'{"text": "\ud83d\ude00", "n": 111111111111111111111111111111}'
    for path in ("/typed", "/any", "/by_path/x", "/raw", "/raw_by_path/x"):
        assert (await ask(port, "POST", path, whole, content_type="application/json")).status == 200


@pytest.mark.fault(
    place="Agent server",
    fault="A model calls a tool with half of a surrogate pair, or an integer of thousands of digits",
    outcome="The model is told so; the rollout goes on.",
)
@pytest.mark.parametrize("arguments", [r'{"text": "\ud800"}', '{"text": %s}' % ("1" * 5000)])
async def test_a_tool_call_with_a_value_that_cannot_be_sent_is_told_to_the_model(arguments):
    model = scripted_model(reply(tool_call("typed", arguments)), "I give up.")
    refs = {
        "resources_server": {"type": "resources_servers", "name": "notes"},
        "model_server": {"type": "responses_api_models", "name": "model"},
    }
    async with running(notes=Notes, model=model, agent=(SimpleAgent, refs)) as client:
        answer = await client.post("agent", "/run", json={"responses_create_params": {"input": "hi"}})
        result = await answer.json()
    assert (answer.status, result["reward"]) == (200, 1.0)
    (told,) = [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert "Invalid tool call arguments" in told


@pytest.mark.fault(
    place="Agent server",
    fault="A model calls a tool with arguments that are nested too deep",
    outcome="The model is told so; the rollout goes on.",
)
@pytest.mark.parametrize("depth", [230, 300, 1000, 100_000])
async def test_a_tool_call_without_a_bottom_is_told_to_the_model(depth):
    model = scripted_model(reply(tool_call("typed", nested(depth).decode())), "I give up.")
    refs = {
        "resources_server": {"type": "resources_servers", "name": "notes"},
        "model_server": {"type": "responses_api_models", "name": "model"},
    }
    async with running(notes=Notes, model=model, agent=(SimpleAgent, refs)) as client:
        answer = await client.post("agent", "/run", json={"responses_create_params": {"input": "hi"}})
        result = await answer.json()
    told = [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert (answer.status, result["reward"], len(told)) == (200, 1.0, 1)
    assert "too deep" in told[0] or "depth limit" in told[0] or "levels deep" in told[0]


@pytest.mark.fault(
    place="Model server",
    fault="A request, of any dialect, that is nested too deep",
    outcome="400 says how deep it may be; no model is called.",
)
async def test_a_question_without_a_bottom_is_a_400(unused_tcp_port):
    model = scripted_model()
    app = model.build_complete_app(OmegaConf.create({}))
    async with serve_inline([InlineServer("model", "127.0.0.1", unused_tcp_port, app)]):
        for path in ("/v1/responses", "/v1/chat/completions", "/v1/messages"):
            for depth in DEPTHS:
                answer = await ask(unused_tcp_port, "POST", path, nested(depth), content_type="application/json")
                assert (path, depth, answer.status) == (path, depth, 400)
    assert model.requests == []


@pytest.mark.fault(
    place="MCP endpoint",
    fault="A message that is nested too deep",
    outcome="400 with JSON-RPC's parse error.",
)
async def test_an_mcp_message_without_a_bottom_is_a_parse_error(unused_tcp_port):
    server = build_server(Bare, name="notes", host="127.0.0.1", port=unused_tcp_port, expose_tools_over_mcp=True)
    app = server.build_complete_app(server.server_client.global_config_dict)
    async with serve_inline([InlineServer("notes", "127.0.0.1", unused_tcp_port, app)]):
        for depth in DEPTHS:
            answer = await ask(unused_tcp_port, "POST", "/mcp", nested(depth), content_type="application/json")
            assert (answer.status, b"-32700" in answer.body) == (400, True)


@pytest.mark.fault(
    place="Server",
    fault="A header line, a request line or a list of headers without an end",
    outcome="431 after 64 KiB or 256 headers, and the connection is closed.",
)
@pytest.mark.parametrize(
    ("start", "rest"),
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: ", b"a"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"a"),
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"x: y\r\n"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 300 + b"\r\n", b""),
    ],
    ids=["value", "name", "path", "headers", "many"],
)
async def test_a_head_is_bounded_in_size(port, start, rest):
    # As much as is read before the refusal: more would be answered by a reset, which takes the reply with it.
    reply = await send_raw(port, start + (rest * MAX_HEAD_BYTES)[: MAX_HEAD_BYTES + 1 - len(start)])
    assert reply.status == 431
    assert "\nhint: " in reply.detail
    ordinary = b"x-long: " + b"a" * 50_000 + b"\r\nconnection: close\r\n\r\n"
    assert (await send_raw(port, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + ordinary)).status == 200


@pytest.mark.fault(
    place="Server",
    fault="A chunked body is followed by trailers without an end",
    outcome="The connection is closed after 64 KiB of them.",
)
async def test_what_follows_a_body_is_bounded_too(port):
    head = b"POST /slow HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    try:
        status = (await send_raw(port, head + b"2\r\n{}\r\n0\r\nx-trailer: " + b"a" * 5_000_000)).status
    except ConnectionError:
        status = 431  # closed while the client was still sending
    assert status == 431


@asynccontextmanager
async def connection(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):  # the other side may have closed first
            await writer.wait_closed()


@pytest.mark.fault(
    place="Server",
    fault="Headers that never come to their end (slowloris), or a connection that says nothing",
    outcome="408 after 30 s, and the connection is closed.",
)
async def test_a_head_is_bounded_in_time(port, monkeypatch):
    monkeypatch.setattr(listening, "HEAD_TIMEOUT_S", 0.2)
    async with connection(port) as (reader, writer):
        async with asyncio.TaskGroup() as group:

            async def trickle() -> None:
                writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
                while not reader.at_eof():
                    writer.write(b"a")
                    await asyncio.sleep(0.02)

            trickling = group.create_task(trickle())
            said = b""
            with suppress(ConnectionResetError):  # it has closed while more was on its way
                while chunk := await reader.read(1024):
                    said += chunk
            trickling.cancel()
    reply = read_reply(said)
    assert (reply.status, "\nhint: " in reply.detail) == (408, True)
    for said in (b"", b"\r\n", b"\r\n\r\n"):
        async with connection(port) as (reader, writer):
            writer.write(said)
            assert await reader.read() == b""


async def test_idle_connections_and_slow_handlers_are_left_alone(port, monkeypatch):
    monkeypatch.setattr(listening, "HEAD_TIMEOUT_S", 10.0)
    too_long_for_a_head_s = 11.0
    assert 2 * too_long_for_a_head_s < listening.KEEP_ALIVE_S
    ask_again = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with connection(port) as (reader, writer):
        for _ in range(2):
            writer.write(ask_again)
            assert b"200 OK" in await reader.readuntil(b"}")
            skip_time(too_long_for_a_head_s)
    async with connection(port) as (reader, writer):
        writer.write(b"POST /slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"\r\nGET / HTTP/1.1\r\nhost: loc")  # the next request begins while this one is answered
        await asyncio.sleep(0.05)
        skip_time(too_long_for_a_head_s)
        assert b"200 OK" in await reader.readuntil(b"{}")
        writer.write(b"alhost\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"}")
