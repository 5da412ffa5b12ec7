# SPDX-License-Identifier: Apache-2.0
"""Web pages and strangers who call servers of a run: by raw bytes on the ports that the run really has."""

import json
from asyncio import to_thread as in_thread
from contextlib import asynccontextmanager
from urllib.request import Request, urlopen

import pytest
from omegaconf import OmegaConf

from nemo_gym import global_config
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.launching.launch import serve_config, server_folder
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import build_server
from tests.servers.mcp.test_client import CounterServer
from tests.support.raw_http import ask, send_raw

NAME = "example_single_tool_call"
ROLLOUTS = server_folder("resources_servers", NAME) / "data" / "example_rollouts.jsonl"
CHAT = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
QUESTION = json.dumps({"input": "hi"}).encode()


@pytest.fixture
def run(monkeypatch, unused_tcp_port):
    """Serve head, resources, agent and model; gives the ports by name, and what was noted meanwhile."""

    @asynccontextmanager
    async def serve(**settings):
        replay = {"rollouts_jsonl_fpath": str(ROLLOUTS)}
        config = GlobalConfigDictParser().parse_no_environment(
            OmegaConf.create(
                {
                    "config_paths": [
                        f"resources_servers/{NAME}/configs/{NAME}.yaml",
                        "responses_api_models/replay_model/configs/replay_model.yaml",
                    ],
                    "head_server": {"port": unused_tcp_port},
                    "policy_model": {"responses_api_models": {"replay_model": replay}},
                    **settings,
                }
            )
        )
        monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", config)
        notes = []
        async with serve_config(config, notes.append) as served:
            ports = {server.server_type: server.port for server in served.servers}
            yield {"head": unused_tcp_port, **ports}, notes

    return serve


@pytest.mark.fault(
    place="Server on loopback",
    fault="A page rebinds its host name to 127.0.0.1 and calls the port",
    outcome="421 names the host and `allowed_hosts`; nothing is run.",
)
async def test_head_and_servers_answer_only_to_their_own_names(run):
    async with run() as (ports, _):
        for port in ports.values():
            own = [f"localhost:{port}", f"127.0.0.1:{port}", "127.0.0.1", "LOCALHOST", "localhost.", f"[::1]:{port}"]
            assert {(await ask(port, "GET", "/", host=host)).status for host in own} == {200}
            foreign = ["evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "192.0.2.7", "", None]
            replies = [await ask(port, "GET", "/", host=host) for host in foreign]
            assert {reply.status for reply in replies} == {421}
            assert replies[0].detail.startswith("the request was refused: it is addressed to 'evil.example'")
            assert "\nhint: " in replies[0].detail
            twice = b"GET / HTTP/1.1\r\nhost: localhost:1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"
            assert (await send_raw(port, twice)).status == 421


@pytest.mark.fault(
    place="Server on loopback",
    fault="A page of another site posts to it, with any content type",
    outcome="403 names the page; nothing is run.",
)
async def test_posts_of_foreign_pages_are_refused(run):
    async with run() as (ports, _):
        calls = [
            (ports["responses_api_models"], "/v1/responses", QUESTION),
            (ports["responses_api_agents"], "/run", b"{}"),
            (ports["resources_servers"], "/seed_session", b"{}"),
            (ports["resources_servers"], "/get_weather", b'{"city": "Oslo"}'),
            (ports["head"], "/", b"{}"),
        ]
        for port, path, body in calls:
            for page in (
                "https://evil.example",
                "http://localhost:3000",
                f"http://127.0.0.1:{port}.evil.example",
                "null",
            ):
                for kind in ("text/plain", "application/json", None):
                    reply = await ask(port, "POST", path, body, origin=page, content_type=kind)
                    assert (reply.status, f"a web page of {page!r}" in reply.detail) == (403, True)
            marked = await ask(port, "POST", path, body, sec_fetch_site="cross-site", content_type="application/json")
            assert marked.status == 403
        port = ports["responses_api_models"]
        own = await ask(
            port, "POST", "/v1/responses", b"{}", origin=f"http://127.0.0.1:{port}", content_type="application/json"
        )
        assert own.status == 400, "a page of the server itself gets as far as the handler"


@pytest.mark.fault(
    place="Model server",
    fault="A body with a content type that any web page can post",
    outcome="415 asks for `application/json`; no model is called.",
)
async def test_bodies_of_types_that_any_page_can_post_are_not_read(run):
    async with run() as (ports, _):
        port = ports["responses_api_models"]
        for path, body in (("/v1/responses", QUESTION), ("/v1/chat/completions", CHAT), ("/v1/messages", CHAT)):
            for kind in (
                "text/plain;charset=UTF-8",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
            ):
                reply = await ask(port, "POST", path, body, content_type=kind)
                assert reply.status == 415
                assert b"hint: send the header `Content-Type: application/json`" in reply.body
        # What programs send: no type at all, or bytes.
        for kind in ("application/json", None, "application/octet-stream"):
            assert (await ask(port, "POST", "/v1/responses", b"{}", content_type=kind)).status == 400
        tools = ports["resources_servers"]
        assert (await ask(tools, "POST", "/get_weather", b'{"city": "Oslo"}', content_type="text/plain")).status == 422
        assert (await ask(tools, "POST", "/get_weather", b'{"city": "Oslo"}')).status == 200


@pytest.mark.fault(
    place="MCP endpoint",
    fault="A page rebinds its name, posts across sites, or posts `text/plain`",
    outcome="421, 403 or 415; no tool is listed or run.",
)
async def test_the_mcp_endpoint_is_closed_to_pages(unused_tcp_port):
    port = unused_tcp_port
    server = build_server(CounterServer, name="counter", host="127.0.0.1", port=port, expose_tools_over_mcp=True)
    app = server.build_complete_app(server.server_client.global_config_dict)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    async with serve_inline([InlineServer("counter", "127.0.0.1", port, app)]):
        json_type = {"content_type": "application/json"}
        assert b'"add"' in (await ask(port, "POST", "/mcp", body, **json_type)).body
        assert (await ask(port, "POST", "/mcp", body, host="evil.example", **json_type)).status == 421
        assert (await ask(port, "POST", "/mcp", body, origin="http://evil.example", **json_type)).status == 403
        refused = await ask(port, "POST", "/mcp", body, content_type="text/plain")
        assert (refused.status, b'"add"' in refused.body) == (415, False)


async def test_names_and_pages_that_the_config_allows_are_let_in(run):
    async with run(allowed_hosts=["gym.example.com"]) as (ports, _):
        port = ports["responses_api_models"]
        kind = {"content_type": "application/json", "host": "gym.example.com"}
        assert (await ask(port, "GET", "/", host="GYM.example.com:80")).status == 200
        assert (await ask(port, "POST", "/v1/responses", b"{}", origin="https://gym.example.com", **kind)).status == 400
        assert (await ask(port, "GET", "/", host="evil.example")).status == 421
    async with run(allowed_hosts=["*"]) as (ports, _):
        port = ports["responses_api_models"]
        kind = {"content_type": "application/json", "host": "anything.example"}
        assert (await ask(port, "POST", "/v1/responses", b"{}", origin="null", **kind)).status == 400


@pytest.mark.fault(
    place="Server on 0.0.0.0",
    fault="Servers are opened to the network without a token",
    outcome="A warning names them, says what others can do, and offers `access_token`.",
)
async def test_servers_for_every_address_warn_and_are_still_closed_to_pages(run):
    async with run(default_host="0.0.0.0") as (ports, notes):
        (warning,) = [note for note in notes if "without a password" in note]
        for name in ("head_server", NAME, "policy_model"):
            assert name in warning
        assert "spend your model's API key" in warning
        assert "access_token" in warning.rpartition("hint: ")[2]
        port = ports["responses_api_models"]
        for name in ("192.0.2.7", "node7", "gym.internal", f"localhost:{port}"):
            assert (await ask(port, "GET", "/", host=name)).status == 200
        assert (await ask(port, "GET", "/", host="evil.example")).status == 421
        assert (await ask(port, "POST", "/v1/responses", QUESTION, origin="http://evil.example")).status == 403


@pytest.mark.fault(
    place="Server on 0.0.0.0",
    fault="A stranger calls servers whose config has an `access_token`",
    outcome="401 everywhere; the user's own commands and `ServerClient` get in by themselves.",
)
async def test_with_an_access_token_only_its_holders_get_in(run):
    secret = "s3cret-of-this-run"
    async with run(default_host="0.0.0.0", access_token=secret) as (ports, notes):
        assert not [note for note in notes if "without a password" in note]
        for port in ports.values():
            for given in ({}, {"authorization": "Bearer wrong"}, {"x_nemo_gym_run_token": "wrong"}):
                refused = await ask(port, "GET", "/", **given)
                assert (refused.status, "www-authenticate: bearer" in refused.headers) == (401, True)
                assert secret.encode() not in refused.body
            assert (await ask(port, "GET", "/", authorization=f"Bearer {secret}")).status == 200
            assert (await ask(port, "GET", "/", x_nemo_gym_run_token=secret)).status == 200
        # From a thread there is no way round the sockets: as another program of this user would do it.
        assert await in_thread(_call_as_another_program, ports["head"]) == 200


def _call_as_another_program(head_port: int) -> int:
    import asyncio

    from nemo_gym._servers.process_environment import run_token_header

    client = ServerClient.load_head_server_config()
    url = f"http://127.0.0.1:{head_port}/global_config_dict_yaml"
    with urlopen(Request(url, headers=run_token_header(client))) as reply:
        config = OmegaConf.create(json.loads(reply.read()))

    async def call() -> int:
        try:
            reply = await ServerClient(head_server_config=client, global_config_dict=config).get(NAME, "/")
            await reply.read()  # which gives the connection back
            return reply.status
        finally:
            await close_global_aiohttp_client()

    return asyncio.run(call())
