# SPDX-License-Identifier: Apache-2.0
"""All servers of a run together, with server processes that do next to nothing."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from fastapi import FastAPI

from nemo_gym._servers.processes.server_host import InlineServer, InlineSpec
from nemo_gym._servers.processes.server_logs import ServerLogs
from nemo_gym._servers.processes.server_process import ChildSpec, ServerDied, ServerLate
from nemo_gym._servers.processes.server_supervisor import Launch, supervise
from nemo_gym._transport.probe import status_of
from nemo_gym.errors import PortInUseError
from tests.support.clock import skip_time
from tests.support.small_servers import free_port, is_free, until

READY = "import os, time\nprint('up')\nos.write(int(os.environ['NEMO_GYM_READY_FD']), b'1')\ntime.sleep(1000)\n"
HANG = "print('loading')\nimport time; time.sleep(1000)\n"


class Scene:
    """What to launch, what was said, and whether anything is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notices = list[str]()
        self.logs = ServerLogs(folder / "logs", sys.stderr)
        self.ports = [free_port()]

    def child(self, name: str, entrypoint: str, port: int | None = None) -> ChildSpec:
        (self.folder / f"{name}.py").write_text(entrypoint)
        where = self._port(port)
        return ChildSpec(name, Path(sys.executable), self.folder, f"{name}.py", "127.0.0.1", where, dict(os.environ))

    def inline(self, name: str, build=FastAPI, port: int | None = None) -> InlineSpec:
        return InlineSpec(name, "127.0.0.1", self._port(port), build)

    def _port(self, port: int | None) -> int:
        if port is None:
            self.ports.append(port := free_port())
        return port

    def run(self, *specs, timeout_s: float = 60):
        head = InlineServer("head", "127.0.0.1", self.ports[0], FastAPI())
        inline = [spec for spec in specs if isinstance(spec, InlineSpec)]
        children = [spec for spec in specs if isinstance(spec, ChildSpec)]
        return supervise(Launch(head, inline, children, timeout_s), self.logs, self.notices.append)


@pytest.fixture
def scene(tmp_path, list_new_children):
    scene = Scene(tmp_path)
    yield scene
    scene.logs.close()
    assert list_new_children() == []
    assert all(map(is_free, scene.ports))


async def test_all_are_ready_inside_and_gone_after(scene, list_new_children):
    child, inline = scene.child("own", READY), scene.inline("here")
    async with scene.run(child, inline) as running:
        (process,) = list_new_children()
        assert running.pids == {"own": process.pid}
        for port in (scene.ports[0], inline.port):
            assert await asyncio.to_thread(status_of, f"http://127.0.0.1:{port}", 5) == "success"
        assert not running.first_death.done()
    assert scene.logs.last_lines("own") == ("up",)


async def test_the_head_server_answers_while_others_are_built(scene):
    """Servers may ask it for the config in their constructors."""
    seen = list[str]()

    def build() -> FastAPI:
        seen.append(status_of(f"http://127.0.0.1:{scene.ports[0]}", 5))
        return FastAPI()

    async with scene.run(scene.inline("asks", build)):
        assert seen == ["success"]


async def test_a_death_is_told(scene):
    async with scene.run(scene.child("one", READY), scene.child("two", READY)) as running:
        os.kill(running.pids["two"], signal.SIGKILL)
        async with asyncio.timeout(300):
            death = await running.first_death
    assert str(death) == "server 'two' was killed by SIGKILL.\nits last lines:\n  up"


async def test_work_goes_on_unless_a_server_dies(scene):
    async with scene.run(scene.child("own", READY)) as running:
        assert await running.run_unless_dead(asyncio.sleep(0, "done")) == "done"
        os.kill(running.pids["own"], signal.SIGTERM)
        with pytest.raises(ServerDied, match="killed by SIGTERM"):
            await running.run_unless_dead(asyncio.Event().wait())


async def test_who_is_late_is_named_and_who_is_not_is_not(scene):
    specs = [scene.child("fine", READY), scene.child("late", HANG), scene.inline("here")]
    # On a busy machine, the others may be late for the first deadlines, too.
    for timeout_s in (3, 30, 300):
        with pytest.raises(ServerLate) as caught:
            async with scene.run(*specs, timeout_s=timeout_s):
                pytest.fail("it is not ready")
        if list(caught.value.late) == ["late"] and scene.notices[-1].endswith("'late'; its last line: loading"):
            break
    assert list(caught.value.late) == ["late"]
    assert set(caught.value.late["late"]) == {"loading"}
    assert scene.notices[-1] == "still waiting for 'late'; its last line: loading"


async def test_one_of_this_process_that_hangs_while_built_is_late_too(scene):
    loop = asyncio.get_running_loop()
    go = threading.Event()

    def hang() -> None:
        loop.call_soon_threadsafe(skip_time, 600)
        go.wait(300)

    specs = [scene.inline("first"), scene.inline("hangs", hang), scene.inline("never begun")]
    with pytest.raises(ServerLate) as caught:
        async with scene.run(*specs, timeout_s=600):
            pytest.fail("it is not ready")
    go.set()
    assert caught.value.late == {"hangs": ()}
    assert scene.notices == ["still waiting for 'hangs'; its last line: nothing printed yet"]


async def test_a_death_while_another_is_built_ends_the_start(scene):
    go = threading.Event()
    specs = [scene.child("dies", "raise SystemExit(9)"), scene.inline("hangs", lambda: go.wait(300))]
    with pytest.raises(ServerDied, match="server 'dies' exited with code 9"):
        async with asyncio.timeout(300), scene.run(*specs):
            pytest.fail("it is not ready")
    go.set()


async def test_one_that_cannot_be_built_stops_the_processes(scene):
    def build():
        raise ValueError("broken")

    with pytest.raises(ServerDied, match="server 'broken' could not be loaded"):
        async with scene.run(scene.child("own", READY), scene.inline("broken", build)):
            pytest.fail("it is not ready")


async def test_a_port_that_is_taken_is_found_before_anything_starts(scene):
    own = scene.child("own", "open('started', 'w')\n" + READY)
    with pytest.raises(PortInUseError, match="server 'own'"):
        async with scene.run(own, scene.inline("same", port=own.port)):
            pytest.fail("it is not ready")
    assert not (scene.folder / "started").exists()


async def test_being_cancelled_while_starting_stops_everything(scene):
    async def run() -> None:
        async with scene.run(scene.child("own", HANG)):
            pytest.fail("it is not ready")

    task = asyncio.create_task(run())
    await asyncio.to_thread(until, lambda: scene.logs.last_lines("own"), "the server has begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
