# SPDX-License-Identifier: Apache-2.0
"""Other users of the machine, who call servers on loopback: by processes that really run as another user."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from asyncio import to_thread as in_thread
from urllib.parse import urlsplit

import pytest

from nemo_gym._servers.http.admission import OWN_NAMES_ONLY, AccessRules
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym.testing import build_server
from tests.adversary.test_foreign_requests import QUESTION, run  # noqa: F401  # a fixture
from tests.servers.mcp.test_client import CounterServer
from tests.support.raw_http import read_reply, send_raw
from tests.viewer.browser import rows
from tests.viewer.browser.conftest import gym_view

NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can start processes of another user"
)
CALL = """
import os, socket, sys
uid, port, way, request = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.stdin.buffer.read()
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
family, host = (socket.AF_INET6, "::ffff:127.0.0.1") if way == "mapped" else (socket.AF_INET, "127.0.0.1")
caller = socket.socket(family)
if way == "bound to lo":
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
caller.connect((host, port))
caller.sendall(request)
if way != "closed":
    while received := caller.recv(65536):
        sys.stdout.buffer.write(received)
"""


def write_request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def call_as(uid: int, port: int, request: bytes, way: str = ""):
    """Send a request by a process of the user `uid`, and return the reply."""
    # It becomes that user only once it runs: our interpreter may lie where the user can't read.
    command = [sys.executable, "-c", CALL, str(uid), str(port), way]
    ended = subprocess.run(command, input=request, capture_output=True, timeout=300)
    assert ended.returncode == 0, ended.stderr.decode()
    return read_reply(ended.stdout)


class Hits:
    """An app that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            self.count += 1
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})


@needs_root
@pytest.mark.fault(
    place="Server on loopback",
    fault="Another user of the machine calls the model, a tool, an agent or the head server",
    outcome="403 names the users and `allow_other_users`; nothing is run. The user's own programs and root's get in.",
)
async def test_servers_on_loopback_answer_only_their_user_and_root(run):  # noqa: F811
    async with run() as (ports, _):
        calls = [
            (ports["responses_api_models"], write_request("POST", "/v1/responses", QUESTION)),
            (ports["responses_api_models"], write_request("POST", "/sessions", b"{}")),
            (ports["responses_api_agents"], write_request("POST", "/run", b"{}")),
            (ports["resources_servers"], write_request("POST", "/get_weather", b'{"city": "Oslo"}')),
            (ports["head"], write_request("GET", "/server_instances")),
        ]
        for port, request in calls:
            reply = await in_thread(call_as, NOBODY, port, request)
            assert (reply.status, f"(uid {NOBODY})" in reply.detail) == (403, True)
            assert "hint: `++allow_other_users=true`" in reply.detail
            assert (await in_thread(call_as, 0, port, request)).status not in (0, 403)


@needs_root
async def test_servers_that_allow_other_users_answer_them(run):  # noqa: F811
    async with run(allow_other_users=True) as (ports, _):
        request = write_request("POST", "/get_weather", b'{"city": "Oslo"}')
        assert (await in_thread(call_as, NOBODY, ports["resources_servers"], request)).status == 200
    async with run(allow_other_users=True, access_token="a-token-to-share") as (ports, _):
        assert (await in_thread(call_as, NOBODY, ports["resources_servers"], request)).status == 401


@needs_root
@pytest.mark.fault(
    place="MCP endpoint",
    fault="Another user of the machine lists its tools",
    outcome="403; no tool is listed or run.",
)
async def test_the_mcp_endpoint_is_closed_to_other_users(unused_tcp_port):
    server = build_server(
        CounterServer, name="counter", host="127.0.0.1", port=unused_tcp_port, expose_tools_over_mcp=True
    )
    app = server.build_complete_app(server.server_client.global_config_dict)
    request = write_request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode())
    async with serve_inline([InlineServer("counter", "127.0.0.1", unused_tcp_port, app)]):
        assert b'"add"' in (await in_thread(call_as, 0, unused_tcp_port, request)).body
        assert (await in_thread(call_as, NOBODY, unused_tcp_port, request)).status == 403


@pytest.mark.thorough
@needs_root
@pytest.mark.fault(
    place="Viewer",
    fault="Another user of the machine opens the page",
    outcome="403 with the reason; nothing is shown.",
)
async def test_the_viewer_shows_nothing_to_other_users(tmp_path):
    rows.write(tmp_path / "run.jsonl", rows.run(1, 1, seed=1, skill=0.5))

    def view_as_nobody() -> int:
        with gym_view("run.jsonl", "--port", "0", cwd=tmp_path) as viewer:
            return call_as(NOBODY, urlsplit(viewer.address).port, write_request("GET", "/")).status

    assert await in_thread(view_as_nobody) == 403


@needs_root
@pytest.mark.fault(
    place="Server on loopback",
    fault="Another user hides: an IPv6 socket, one bound to the interface, or one that is closed at once",
    outcome="The handler is never called.",
)
@pytest.mark.parametrize("way", ["mapped", "bound to lo", "closed"])
async def test_other_users_cannot_hide(unused_tcp_port, way):
    app = Hits()
    async with serve_inline([InlineServer("hits", "127.0.0.1", unused_tcp_port, app)]):
        for _ in range(3):
            reply = await in_thread(call_as, NOBODY, unused_tcp_port, write_request("GET", "/"), way)
            assert reply.status == (0 if way == "closed" else 403)
        await send_raw(unused_tcp_port, write_request("GET", "/"))  # by now all earlier connections are handled
        assert app.count == 1


async def test_a_request_whose_sender_is_gone_is_not_answered(unused_tcp_port):
    # The loop is held until the sender has reset its connection: whose it was can't be known then.
    app = Hits()
    async with serve_inline([InlineServer("hits", "127.0.0.1", unused_tcp_port, app)]):
        with socket.create_connection(("127.0.0.1", unused_tcp_port)) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            caller.sendall(write_request("GET", "/"))
        for _ in range(10):
            await asyncio.sleep(0)
        await send_raw(unused_tcp_port, write_request("GET", "/"))
        assert app.count == 1


def test_servers_for_every_address_do_not_ask_for_the_user():
    assert OWN_NAMES_ONLY.asks_for_user("127.0.0.1")
    assert OWN_NAMES_ONLY.asks_for_user("localhost")
    assert not OWN_NAMES_ONLY.asks_for_user("0.0.0.0")
    assert not AccessRules(allow_other_users=True).asks_for_user("127.0.0.1")
