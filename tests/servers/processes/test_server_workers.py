# SPDX-License-Identifier: Apache-2.0
"""Several workers of one server, as real processes."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest
from fastapi import FastAPI
from omegaconf import OmegaConf

from nemo_gym._servers.http.sockets import bind
from nemo_gym._servers.processes.server_workers import ServerWorker, run, this_worker
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
from nemo_gym.errors import PortInUseError
from nemo_gym.testing import build_server

WORKERS = 3
COUNTER = """
import asyncio, importlib, os
from fastapi import Request

from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.server_utils import (
    SESSION_ID_KEY, get_nemo_gym_fastapi_num_workers, is_nemo_gym_fastapi_entrypoint, is_nemo_gym_fastapi_worker
)


class Counter(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    counts: dict = {}

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/increment")(self.increment)
        app.post("/import_again")(self.import_again)
        return app

    async def increment(self, request: Request) -> dict:
        key = request.session[SESSION_ID_KEY]
        self.counts[key] = self.counts.get(key, 0) + 1
        return {"count": self.counts[key], "pid": os.getpid(), "workers": get_nemo_gym_fastapi_num_workers()}

    async def import_again(self) -> dict:
        module = importlib.import_module("resources_servers.counter.app")
        return {"worker": is_nemo_gym_fastapi_worker(), "app": hasattr(module, "app")}

    async def verify(self, body: BaseVerifyRequest):
        raise NotImplementedError


if __name__ == "__main__":
    Counter.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = Counter.run_webserver()
"""


@dataclass
class Running:
    main: subprocess.Popen
    port: int
    folder: Path

    @property
    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.main.pid).children()


@contextmanager
def counter_server(folder: Path, workers: int) -> Iterator[Running]:
    """A counter server with several workers; whatever becomes of it, it leaves neither process nor file behind."""
    home = folder / "resources_servers" / "counter"
    home.mkdir(parents=True)
    (home / "app.py").write_text(COUNTER)
    sockets = Path(tempfile.mkdtemp(prefix="ng", dir="/tmp"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    block = {"entrypoint": "app.py", "domain": "other", "host": "127.0.0.1", "port": port, "num_workers": workers}
    config = {
        "counter": {"resources_servers": {"counter": block}},
        "head_server": {"host": "127.0.0.1", "port": 1},
    }
    main = subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=home,
        env={
            **os.environ,
            "NEMO_GYM_CONFIG_DICT": OmegaConf.to_yaml(config),
            "NEMO_GYM_CONFIG_PATH": "counter",
            "NEMO_GYM_EXTRA_ROOTS": str(folder),
            "TMPDIR": str(sockets),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    started = set[psutil.Process]()
    try:
        running = Running(main, port, sockets)
        asyncio.run(all_workers_answer(running, workers))
        started = set(running.workers)
        assert len(started) == workers
        yield running
        if main.poll() is None:
            main.terminate()
        main.wait(timeout=300)
        _, left = psutil.wait_procs(started, timeout=300)
        assert not left
        assert list(sockets.iterdir()) == []
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
    finally:
        for process in (main, *started):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        main.wait()
        main.stderr.close()
        shutil.rmtree(sockets)


async def all_workers_answer(server: Running, workers: int) -> None:
    """Connections go to a worker each: a new one for every call reaches them all."""
    seen = set[int]()
    async with asyncio.timeout(300), client() as session:
        while len(seen) < workers:
            assert server.main.poll() is None, server.main.stderr.read()
            try:
                seen.add((await increment(session, server, headers={"connection": "close"}))["pid"])
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)  # it is still loading, and needs the processor more than we do


def client(**options) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), **options)


async def increment(session: aiohttp.ClientSession, server: Running, **options) -> dict:
    async with session.post(f"http://127.0.0.1:{server.port}/increment", **options) as reply:
        return {**await reply.json(), "cookies": reply.cookies}


async def count_to_five(session: aiohttp.ClientSession, server: Running) -> list[dict]:
    replies = [await increment(session, server)]
    while len(replies) < 5:
        replies.append(await increment(session, server, cookies=replies[-1]["cookies"]))
    return replies


@pytest.mark.slow
def test_every_session_stays_with_one_worker_over_shared_connections(tmp_path):
    async def play(server: Running) -> tuple[list[list[dict]], dict]:
        async with client(connector=aiohttp.TCPConnector(limit=16)) as session:
            sessions = await asyncio.gather(*(count_to_five(session, server) for _ in range(60)))
            async with session.post(f"http://127.0.0.1:{server.port}/import_again") as reply:
                return sessions, await reply.json()

    with counter_server(tmp_path, WORKERS) as server:
        sessions, imported = asyncio.run(play(server))
        assert [[reply["count"] for reply in replies] for replies in sessions] == [[1, 2, 3, 4, 5]] * 60
        by_worker = Counter(frozenset(reply["pid"] for reply in replies) for replies in sessions)
        assert all(len(pids) == 1 for pids in by_worker)
        assert sessions[0][0]["workers"] == WORKERS
        assert imported == {"worker": True, "app": False}, "the idiom of servers with an app to import does no harm"
        server.main.send_signal(signal.SIGINT)
        assert server.main.wait(timeout=300) == 0
        # A busy machine may not end the workers in time, so what is said of that is no failure.
        assert "Traceback" not in server.main.stderr.read(), "Ctrl-C is no reason for tracebacks"


@pytest.mark.slow
def test_the_death_of_a_worker_ends_the_server_and_is_named(tmp_path):
    with counter_server(tmp_path, 2) as server:
        victim = server.workers[1]
        victim.kill()
        assert server.main.wait(timeout=300) == 1
        said = server.main.stderr.read()
        assert "server 'counter'" in said
        assert f"of 2 (pid {victim.pid}) was killed by SIGKILL" in said


@pytest.mark.slow
def test_workers_end_when_the_main_process_is_killed(tmp_path):
    with counter_server(tmp_path, 2) as server:
        workers = server.workers
        server.main.kill()
        _, alive = psutil.wait_procs(workers, timeout=300)
    assert len(workers) == 2
    assert alive == []


# --- what the main process does, with workers that do next to nothing -----------------------------------------------

WORKER = """
import json, os, signal, sys, time
worker = json.loads(os.environ["NEMO_GYM_WORKER"])
{body}
os.write(worker["ready_fd"], b"1")
time.sleep(1000)
"""
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def run_workers(body: str = "", **options) -> int:
    listener = bind("127.0.0.1", 0, "tiny")
    command = [sys.executable, "-S", "-c", WORKER.format(body=body)]
    return run(command, listener, WORKERS, server_name="tiny", environment={}, **options)


def signal_this_process(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_when_all_are_ready_ends_all_workers_and_is_no_failure(number, caplog, list_new_children):
    assert run_workers(on_ready=lambda: signal_this_process(number), grace_s=3600) == 0
    assert list_new_children() == []
    assert caplog.text == ""


def test_workers_that_do_not_end_in_time_are_killed(caplog):
    assert run_workers(STUBBORN, on_ready=lambda: signal_this_process(signal.SIGTERM), grace_s=0.01) == 0
    assert caplog.text.count("which did not end") == WORKERS


def test_a_second_signal_kills_at_once(caplog):
    both = (signal.SIGINT, signal.SIGTERM)
    assert run_workers(STUBBORN, on_ready=lambda: signal_this_process(*both), grace_s=3600) == 0
    assert caplog.text.count("which did not end") == WORKERS


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("if worker['index'] == 1: sys.exit(7)", "worker 1 of 3 (pid {pid}) exited with code 7"),
        ("if worker['index'] == 2: sys.exit(0)", "worker 2 of 3 (pid {pid}) exited with code 0"),
        ("if worker['index'] == 0: os.abort()", "worker 0 of 3 (pid {pid}) was killed by SIGABRT"),
    ],
)
def test_a_worker_that_ends_by_itself_ends_the_others_and_is_named(body, how, caplog, list_new_children):
    assert run_workers(body, grace_s=3600) == 1
    (record,) = caplog.records
    assert record.args[0] == "tiny"
    assert how.format(pid=record.args[3]) in caplog.text
    assert list_new_children() == []


def test_a_command_that_does_not_exist_fails_as_itself():
    with pytest.raises(FileNotFoundError, match="no-such-python"):
        run(["/no-such-python"], bind("127.0.0.1", 0, "tiny"), WORKERS, server_name="tiny", environment={})


def test_every_worker_has_its_own_socket_on_a_port_that_nobody_else_can_take(tmp_path):
    listener = bind("127.0.0.1", 0, "tiny")
    port = listener.getsockname()[1]
    taken = []

    def look() -> None:
        try:
            # Not by psutil: the files of a worker are not for everybody to see.
            sockets = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
            listening = [socket for socket in sockets if socket[1].endswith(f":{port:04X}") and socket[3] == "0A"]
            assert len(listening) == WORKERS
            with pytest.raises(PortInUseError) as caught:
                bind("127.0.0.1", port, "another")
            taken.append(caught.value)
        finally:
            signal_this_process(signal.SIGTERM)

    body = "import socket; listening = socket.socket(fileno=worker['listen_fd']); listening.listen()"
    command = [sys.executable, "-S", "-c", WORKER.format(body=body)]
    assert run(command, listener, WORKERS, server_name="tiny", environment={}, on_ready=look) == 0
    assert taken
    bind("127.0.0.1", port, "another").close()


# --- a worker ---------------------------------------------------------------------------------------------------------


def test_a_process_that_nobody_started_as_a_worker_is_none():
    assert this_worker({}) is None


class Stateless(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body):
        raise NotImplementedError


def test_a_server_without_affinity_answers_every_request_itself(tmp_path):
    worker = ServerWorker(0, 1, str(tmp_path), *(-1,) * 4)
    app = FastAPI()
    assert build_server(Stateless, session_affinity=False)._add_affinity(app, worker) is app
