# SPDX-License-Identifier: Apache-2.0
"""One server process, from start to end."""

import asyncio
import os
import pickle
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from nemo_gym._servers.http.sockets import bind
from nemo_gym._servers.processes import server_process as processes
from nemo_gym._servers.processes.server_process import ChildSpec, ServerDied, ServerLate, ServerProcess, describe_exit

READY = "import os, time\nos.write(int(os.environ['NEMO_GYM_READY_FD']), b'1')\n"
SLEEP = "import time\ntime.sleep(1000)\n"


@asynccontextmanager
async def child(folder: Path, entrypoint: str, python: str = sys.executable):
    (folder / "app.py").write_text(entrypoint)
    sock = bind("127.0.0.1", 0, "tiny")
    host, port = sock.getsockname()
    lines = list[str]()
    spec = ChildSpec("tiny", Path(python), folder, "app.py", host, port, dict(os.environ))
    started = await ServerProcess.start(spec, sock, lines.append)
    try:
        yield started, lines
    finally:
        async with asyncio.timeout(300):
            await started.stop()


async def soon(coroutine):
    async with asyncio.timeout(300):
        return await coroutine


async def test_a_server_that_says_so_is_ready_and_stops_when_asked(tmp_path):
    async with child(tmp_path, READY + SLEEP) as (started, _):
        await soon(started.ready())
        pid = started.pid
    assert not psutil.pid_exists(pid)


async def test_what_it_prints_is_taken_line_by_line_and_the_last_twenty_are_kept(tmp_path):
    async with child(tmp_path, "for n in range(30): print('line', n)\nprint('ä', end='')") as (started, lines):
        death = await soon(started.wait_for_death())
    assert lines == [*(f"line {n}" for n in range(30)), "ä"]
    assert death.last_lines == tuple(lines[-20:])
    assert str(death).startswith("server 'tiny' exited with code 0.\nits last lines:\n  line 11\n")


async def test_a_line_without_end_does_not_stop_it(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LINE_LIMIT", 1000)
    async with child(tmp_path, "print('x' * 100_000)\nprint('after')") as (started, lines):
        await soon(started.wait_for_death())
    assert lines[-1] == "after"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("raise SystemExit(3)", "exited with code 3"),
        ("pass", "exited with code 0"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("import os; os.abort()", "was killed by SIGABRT"),
    ],
)
async def test_it_is_told_how_a_server_ended(tmp_path, end, how):
    async with child(tmp_path, end) as (started, _):
        death = await soon(started.wait_for_death())
    assert str(death) == f"server 'tiny' {how}. It printed nothing."


def test_a_signal_without_a_name_is_told_by_its_number():
    assert describe_exit(-200) == "was killed by signal 200"


async def test_a_death_is_told_although_something_it_started_holds_its_pipes(tmp_path):
    grandchild = "import os, time\nprint('last words')\nif not os.fork(): time.sleep(1000)\n"
    async with child(tmp_path, grandchild + "else: os._exit(5)") as (started, _):
        death = await soon(started.wait_for_death())
    assert death.how == "exited with code 5"
    assert death.last_lines == ("last words",)


async def test_one_that_does_not_listen_to_signals_is_killed_with_all_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_INTERRUPT_GRACE_S", 0.1)
    monkeypatch.setattr(processes, "_TERMINATE_GRACE_S", 0.1)
    stubborn = (
        "import signal, subprocess\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "for flag in (True, False): subprocess.Popen(['sleep', '1000'], start_new_session=flag)\n"
    )
    async with child(tmp_path, stubborn + READY + SLEEP) as (started, _):
        await soon(started.ready())
        family = [psutil.Process(started.pid), *psutil.Process(started.pid).children()]
        assert len(family) == 3
    assert started.process.returncode == -signal.SIGKILL
    _, left = psutil.wait_procs(family, timeout=300)
    assert left == []


async def test_a_python_that_does_not_exist_is_told_as_the_servers_end(tmp_path):
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ServerDied, match=r"server 'tiny' could not be started: .*no-such-python"):
        async with child(tmp_path, "", python="/no-such-python"):
            pass
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2, "pipes and socket are closed; the loop keeps its own"


async def test_the_port_is_the_childs_alone(tmp_path):
    listen = "import os, socket\nsock = socket.socket(fileno=int(os.environ['NEMO_GYM_LISTEN_FD']))\nsock.listen()\n"
    async with child(tmp_path, listen + READY + SLEEP) as (started, _):
        port = started.spec.port
        await soon(started.ready())
        assert not [c for c in psutil.Process().net_connections("tcp4") if c.laddr.port == port]
        assert [c for c in psutil.Process(started.pid).net_connections("tcp4") if c.laddr.port == port]
    bind("127.0.0.1", port, "next").close()


@pytest.mark.parametrize("error", [ServerDied("a", "exited with code 1", ["x"]), ServerLate(2.0, {"a": ("x",)})])
def test_errors_survive_pickling_and_are_runtime_errors(error):
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert isinstance(copy, RuntimeError)


def test_all_late_servers_are_named():
    assert str(ServerLate(2.5, {"a": ("x", "y"), "b": ()})).splitlines() == [
        "server 'a' was not ready within 2.5 s.",
        "its last lines:",
        "  x",
        "  y",
        "server 'b' was not ready within 2.5 s. It printed nothing.",
        "hint: if it needs longer to load, raise `++server_startup_timeout_seconds=<seconds>`",
    ]
