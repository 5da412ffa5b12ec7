# SPDX-License-Identifier: Apache-2.0
"""The key of a run is in no log, reply or file, whatever the endpoint does with it."""

import asyncio
import json
import logging
import os
import socket
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import aiohttp
import httpx
import pytest
from hypothesis import given, strategies as st
from omegaconf import OmegaConf

from nemo_gym import global_config
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.outcomes import Failed
from nemo_gym._rollouts.run_manifest import Counts, InputIdentity, Manifest
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._servers.direct_calls.running_apps import work_for
from nemo_gym._servers.processes.server_logs import route_output
from nemo_gym._servers.processes.server_process import ChildSpec, ServerProcess
from nemo_gym._transport.failures import Failure
from nemo_gym._transport.retries import RetryRule
from nemo_gym._util.known_secrets import KNOWN_SECRETS, KnownSecrets, MaskedStream, describe_error
from nemo_gym.testing import build_server
from responses_api_models.openai_model.app import SimpleModelServer
from tests.support.eval_runs import Runner, write_tasks
from tests.support.small_servers import free_port

KEY = "sk-adversary/0123+4567"


@pytest.fixture(autouse=True)
def _known_by_this_test_alone(monkeypatch):
    monkeypatch.setattr(KNOWN_SECRETS, "_values", set())
    monkeypatch.setattr(KNOWN_SECRETS, "_forms", ())


async def greet_like_ssh(reader: asyncio.StreamReader) -> bytes:
    return b"SSH-2.0-OpenSSH_9.6\r\n"


async def redirect_to_itself(reader: asyncio.StreamReader) -> bytes:
    path = (await _head(reader)).split()[1]
    return b"HTTP/1.1 307 Moved\r\nLocation: %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % path


async def flood_with_headers(reader: asyncio.StreamReader) -> bytes:
    return b"HTTP/1.1 200 OK\r\nX-Echo: " + await _head(reader) * 100 + b"\r\n\r\n"


async def echo_the_request(reader: asyncio.StreamReader) -> bytes:
    body = b"unknown key in:\n" + await _head(reader)
    return b"HTTP/1.1 401 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)


async def refuse_whatever_comes(reader: asyncio.StreamReader) -> bytes:
    await reader.read(1)
    return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def _head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def listening(answer: Callable):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await answer(reader))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def said_of(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """Return all that a model server says of a call to the endpoint at `url`: its reply, its headers, its log."""
    settings = {"openai_base_url": f"{url}/v1", "openai_api_key": KEY, "openai_model": "m"}
    app = build_server(SimpleModelServer, **settings).build_complete_app(OmegaConf.create({}))
    with caplog.at_level(logging.DEBUG, "nemo_gym"):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://model") as client:
            reply = await client.post("/v1/responses", json={"input": "hello"})
    assert reply.status_code >= 400
    return "\n".join([reply.text, str(reply.headers), caplog.text])


@pytest.mark.fault(
    place="Model endpoint",
    fault="It does not speak HTTP, redirects in a circle, floods with headers, or repeats the key in its error",
    outcome="The failure names the cause; the key is in no reply, header or log line.",
)
@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (greet_like_ssh, "not HTTP"),
        (redirect_to_itself, "redirects in a circle"),
        (flood_with_headers, "not HTTP"),
        (echo_the_request, "answered 401"),
    ],
)
async def test_an_endpoint_that_misbehaves_does_not_make_us_tell_the_key(answer, cause, caplog):
    async with listening(answer) as place:
        said = await said_of(f"http://{place}", caplog)
    assert cause in said
    assert_is_nowhere(KEY, said)


async def test_an_endpoint_without_tls_does_not_make_us_tell_the_key(caplog, monkeypatch):
    monkeypatch.setattr(RetryRule, "draw_pause_s", lambda *_: 0.001)
    async with listening(refuse_whatever_comes) as place:
        said = await said_of(f"https://{place}", caplog)
    assert "it speaks plain HTTP" in said
    assert_is_nowhere(KEY, said)


def assert_is_nowhere(key: str, text: str) -> None:
    assert key not in text
    assert quote(key, safe="") not in text
    assert json.dumps(key)[1:-1] not in text


@pytest.mark.fault(
    place="Model endpoint",
    fault="It repeats the key, also percent-encoded and in base64, in the body of every error of a run",
    outcome="Terminal, server logs and all files of the run hold `****` in its place.",
)
def test_a_run_against_an_endpoint_that_repeats_the_key_leaves_it_nowhere(tmp_path):
    with endpoint_that_repeats_the_key() as endpoint:
        runner = Runner(tmp_path, endpoint, free_port())
        done = runner.run("-i", str(write_tasks(tmp_path / "tasks.jsonl", 2)), "++nemo_gym_log_dir=logs")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (tmp_path / "logs" / "policy_model.log") in files
    assert done.returncode == 1
    assert "****" in runner.output.with_name("r_failures.jsonl").read_text()
    for text in (done.stdout, done.stderr, *(path.read_text() for path in files)):
        assert "sk-secret" not in text
        assert b64encode(b"me:sk-secret").decode().rstrip("=")[4:-1] not in text


@contextmanager
def endpoint_that_repeats_the_key() -> Iterator[SimpleNamespace]:
    class Repeat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            key = self.headers["Authorization"].removeprefix("Bearer ")
            shown = f"{key} {quote(key, safe='')} Basic {b64encode(f'me:{key}'.encode()).decode()}"
            self.send_response(400, f"Bad {key}")
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"message": f"unknown key {shown}"}}).encode())

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Repeat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


def test_the_error_of_a_library_is_shown_without_its_request():
    request = aiohttp.RequestInfo("http://host", "POST", {"Authorization": "Bearer never-registered-key"})
    error = aiohttp.ClientResponseError(request, (), status=400, message="bad")
    assert "never-registered-key" in repr(error)
    assert describe_error(error) == "ClientResponseError(\"400, message='bad', url='http://host'\")"


@given(
    key=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=8).filter(
        lambda text: len(set(text)) > 3
    ),
    user=st.text("abc", max_size=5),
)
def test_a_key_is_found_in_every_encoding(key, user):
    known = KnownSecrets()
    known.add([f"{key}-1"])
    basic = b64encode(f"{user}:{key}-1".encode()).decode()
    for shown in (f"{key}-1", quote(f"{key}-1", safe=""), json.dumps(f"{key}-1"), repr(f"{key}-1"), basic):
        assert known.mask(f"<{shown}>") != f"<{shown}>"
    assert known.mask_bytes(f"<{key}-1>".encode()) == b"<****>"


@pytest.mark.parametrize("value", ["EMPTY", "dummy", "none", "secret", "not-needed", "******", "12345", ""])
def test_a_placeholder_is_no_secret_so_that_logs_stay_readable(value):
    known = KnownSecrets()
    known.add([value])
    assert known.mask(f"the model said {value}.") == f"the model said {value}."


@pytest.mark.fault(
    place="Server log",
    fault="A server prints the key, which the config, a header or the environment holds",
    outcome="Its log file and the terminal hold `****` instead.",
)
def test_what_a_server_prints_is_logged_without_the_secrets_of_config_and_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    headers = {"Authorization": "Bearer of-a-header-9", "X-Title": "readable"}
    global_config._use_config(
        OmegaConf.create(
            {"m": {"api_key": "${policy_api_key}", "default_headers": headers}, "policy_api_key": "sk-1-of-config"}
        )
    )
    with route_output(tmp_path), work_for("server"):
        print("sk-of-the-environment of-a-header-9 sk-1-of-config readable")
    assert (tmp_path / "server.log").read_text() == "**** **** **** readable\n"
    print("sk-1-of-config", file=MaskedStream(sys.stderr))
    assert capsys.readouterr().err == "****\n"


async def test_what_a_server_process_prints_is_taken_without_the_key(tmp_path):
    KNOWN_SECRETS.add([KEY])
    (tmp_path / "app.py").write_text(f"print({KEY!r}); raise ValueError({KEY!r})")
    spec = ChildSpec("server", Path(sys.executable), tmp_path, "app.py", "127.0.0.1", 0, os.environ)
    lines = list[str]()
    child = await ServerProcess.start(spec, socket.create_server(("127.0.0.1", 0)), lines.append)
    died = await child.wait_for_death()
    await child.stop()
    assert "ValueError: ****" in str(died)
    assert_is_nowhere(KEY, "\n".join([*lines, str(died)]))


@pytest.mark.fault(
    place="Failures file",
    fault="An agent's failed result repeats the key",
    outcome="The failure row holds `****`; scored rows are data and are written as they are.",
)
def test_a_failure_row_holds_no_key(tmp_path):
    KNOWN_SECRETS.add([KEY])
    paths = RunPaths.of(tmp_path / "r.jsonl")
    manifest = Manifest(counts=Counts(requested=1), input=InputIdentity(path="i", size_bytes=0, sha256=""))
    failed = Failed(
        {"_ng_task_index": 0}, Failure("agent", f"http://u:{KEY}@h", False, f"got {KEY}"), 1, 0.1, {"log": KEY}
    )
    with Journal.resume(paths, manifest) as journal:
        journal.record(failed)
    assert_is_nowhere(KEY, paths.failures.read_text())
