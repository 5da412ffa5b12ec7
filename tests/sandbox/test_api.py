# SPDX-License-Identifier: Apache-2.0
"""`AsyncSandbox` and `Sandbox` over a provider that keeps its sandboxes in memory, and over the local one."""

import asyncio
import gc
import threading
from pathlib import Path

import pytest
import uvloop

from nemo_gym.sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    register_provider,
)
from nemo_gym.sandbox.providers import registry
from nemo_gym.sandbox.providers.base import SandboxConfigError

LOCAL = {"local": {"isolation": "rlimits"}}


class Memory:
    """A provider as somebody else would write it: only what the protocol asks for."""

    name = "memory"

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.files: dict[str, bytes] = {}

    async def create(self, spec):
        self.calls.append(("create", spec))
        return SandboxHandle(sandbox_id="s1", provider_name=self.name, raw={})

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=180, user=None):
        self.calls.append(("exec", command, cwd, env, timeout_s, user))
        return SandboxExecResult(stdout=command, stderr="", return_code=0)

    async def upload_file(self, handle, source_path, target_path):
        self.calls.append(("upload", source_path, target_path))
        if target_path != "/there":
            self.files[target_path] = source_path.read_bytes()

    async def download_file(self, handle, source_path, target_path):
        self.calls.append(("download", source_path, target_path))

    async def status(self, handle):
        return SandboxStatus.RUNNING

    async def close(self, handle):
        self.calls.append(("close", handle.sandbox_id))

    async def aclose(self):
        self.calls.append(("aclose",))


@pytest.fixture
def memory() -> Memory:
    return Memory()


async def test_a_sandbox_goes_through_its_life_with_its_provider(memory):
    spec = SandboxSpec(image="x")
    box = AsyncSandbox(memory, spec)
    assert await box.status() is SandboxStatus.UNKNOWN
    async with box:
        assert memory.calls == []
        assert await box.start() is box
        assert (box.sandbox_id, await box.status()) == ("s1", SandboxStatus.RUNNING)
        assert (await box.exec("a")).stdout == "a"
        await box.exec("b", cwd="/c", env={"d": "e"}, timeout_s=5, user="f")
        await box.upload("here", "/there")
        await box.download("/there", "here")
    assert await box.status() is SandboxStatus.STOPPED
    assert memory.calls == [
        ("create", spec),
        ("exec", "a", None, None, 180, None),
        ("exec", "b", "/c", {"d": "e"}, 5, "f"),
        ("upload", Path("here"), "/there"),
        ("download", "/there", Path("here")),
        ("close", "s1"),
        ("aclose",),
    ]


async def test_a_spec_may_come_with_the_start_but_must_come(memory):
    spec = SandboxSpec(image="y")
    await AsyncSandbox(memory).start(spec)
    with pytest.raises(ValueError, match=r"no spec to start a sandbox from\nhint"):
        await AsyncSandbox(memory).start()
    assert memory.calls == [("create", spec)]


async def test_stopping_twice_does_no_harm_and_starting_twice_is_refused(memory):
    box = await AsyncSandbox(memory, SandboxSpec()).start()
    with pytest.raises(RuntimeError, match="'s1' is already running"):
        await box.start()
    await box.stop()
    await box.stop()
    assert memory.calls[1:] == [("close", "s1"), ("aclose",)]
    with pytest.raises(RuntimeError, match="cannot be started again"):
        await box.start()


async def test_a_sandbox_that_never_started_closes_its_provider_too(memory):
    async with AsyncSandbox(memory):
        pass
    assert memory.calls == [("aclose",)]


async def test_a_sandbox_that_could_not_be_ended_can_be_stopped_again(memory, monkeypatch):
    box = await AsyncSandbox(memory, SandboxSpec()).start()
    with monkeypatch.context() as patched:
        patched.setattr(memory, "close", None)
        with pytest.raises(TypeError):
            await box.stop()
    assert memory.calls[-1] == ("aclose",)
    await box.stop()
    assert memory.calls[-2:] == [("close", "s1"), ("aclose",)]


async def test_files_of_the_spec_go_through_the_provider(memory, tmp_path):
    local = tmp_path / "local"
    local.write_text("from a file")
    files = {"/a": "text é", "/b": b"\xff", "/c": local}
    await AsyncSandbox(memory, SandboxSpec(files=files)).start()
    assert memory.files == {"/a": "text é".encode(), "/b": b"\xff", "/c": b"from a file"}
    assert all(isinstance(path, Path) for _, path, _ in memory.calls[1:])


async def test_a_file_that_cannot_be_placed_ends_the_sandbox(memory, tmp_path):
    box = AsyncSandbox(memory, SandboxSpec(files={"/a": tmp_path / "missing"}))
    with pytest.raises(FileNotFoundError):
        await box.start()
    assert memory.calls[-1] == ("close", "s1")
    assert await box.status() is SandboxStatus.UNKNOWN


async def test_commands_run_in_the_working_folder_of_the_spec_unless_they_say_otherwise(memory):
    box = await AsyncSandbox(memory, SandboxSpec(workdir="/w")).start()
    await box.exec("a")
    await box.exec("b", cwd="/c")
    assert [call[2] for call in memory.calls[1:]] == ["/w", "/c"]


@pytest.mark.parametrize("use", ["exec", "upload", "download", "endpoint", "serialize"])
async def test_a_sandbox_that_is_not_running_says_how_to_start_it(use):
    box = AsyncSandbox(LOCAL)
    calls = {
        "exec": lambda: box.exec("x"),
        "upload": lambda: box.upload("x", "y"),
        "download": lambda: box.download("x", "y"),
        "endpoint": lambda: box.endpoint(80),
        "serialize": box.serialize,
    }
    with pytest.raises(RuntimeError, match=r"not running\nhint: `await sandbox.start"):
        await calls[use]()


async def test_a_provider_is_also_made_from_a_config(memory, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    register_provider("memory", lambda: memory)
    async with AsyncSandbox({"memory": {}}) as box:
        assert box.provider is memory


async def test_what_a_provider_does_not_offer_is_said(memory):
    async with await AsyncSandbox(memory, SandboxSpec(ports=[80])).start() as box:
        with pytest.raises(ValueError, match=r"port 81 .* is not declared; declared: \[80\]\nhint"):
            await box.endpoint(81)
        with pytest.raises(NotImplementedError, match="'memory' offers no endpoints"):
            await box.endpoint(80)
        with pytest.raises(RuntimeError, match="'memory' cannot be passed to another process"):
            await box.serialize()
        with pytest.raises(NotImplementedError, match="'memory' offers no terminals"):
            await box.pty.create()
        with pytest.raises(NotImplementedError, match="'memory' cannot find open terminals"):
            await box.pty.attach("1")
    with pytest.raises(RuntimeError, match="'memory' cannot connect to a running sandbox"):
        await AsyncSandbox.connect({"provider": "memory"}, provider=memory)
    with pytest.raises(SandboxConfigError, match="belongs to provider 'docker', not 'local'"):
        await AsyncSandbox.connect({"provider": "docker"}, provider=LOCAL)


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_provider_may_describe_its_sandboxes_for_others(memory, awaited):
    async def later(value):
        return value

    give = later if awaited else lambda value: value
    memory.serialize_handle = lambda handle, *, scope: give({"id": handle.sandbox_id, "scope": scope})
    memory.connect = lambda descriptor: give(SandboxHandle(descriptor["id"], "memory"))
    box = await AsyncSandbox(memory, SandboxSpec()).start()
    descriptor = await box.serialize(scope="read")
    assert descriptor == {"id": "s1", "scope": "read"}
    other = await AsyncSandbox.connect(descriptor, provider=memory)
    assert (other.sandbox_id, (await other.exec("a")).stdout) == ("s1", "a")


async def test_a_scope_that_cannot_be_enforced_is_refused():
    async with await AsyncSandbox(LOCAL, SandboxSpec()).start() as box:
        with pytest.raises(RuntimeError, match=r"cannot limit .* scope 'read'(.|\n)*hint"):
            await box.serialize(scope="read")


async def test_an_error_inside_still_stops_the_sandbox(memory):
    with pytest.raises(KeyError):
        async with await AsyncSandbox(memory, SandboxSpec()).start():
            raise KeyError
    assert memory.calls[-2:] == [("close", "s1"), ("aclose",)]


def play(tmp_path) -> str:
    with Sandbox(LOCAL, SandboxSpec(files={"a": "text"})) as box:
        assert box.status() is SandboxStatus.UNKNOWN
        assert box.start().status() is SandboxStatus.RUNNING
        box.download("a", tmp_path / "a")
        box.upload(tmp_path / "a", "b")
        other = Sandbox.connect(box.serialize(), provider=LOCAL)
        return other.exec("cat a b").stdout


def test_the_same_works_without_an_event_loop(tmp_path):
    before = set(threading.enumerate())
    assert play(tmp_path) == "texttext"
    box = Sandbox(LOCAL, SandboxSpec()).start()
    box.stop()
    box.stop()
    del box
    gc.collect()
    assert set(threading.enumerate()) <= before


async def test_what_blocks_is_refused_while_an_event_loop_runs(tmp_path):
    with pytest.raises(RuntimeError, match=r"inside a running event loop\nhint: use `AsyncSandbox`"):
        Sandbox(LOCAL, SandboxSpec()).start()
    assert await asyncio.to_thread(play, tmp_path) == "texttext"


def test_errors_cross_from_the_loop_to_the_caller():
    with Sandbox(LOCAL, SandboxSpec()).start() as box, pytest.raises(ValueError, match="not declared"):
        box.endpoint(80)


def test_it_works_on_the_event_loop_that_servers_run_on(processes):
    async def play() -> None:
        async with await AsyncSandbox(LOCAL, SandboxSpec(files={"a": "text"})).start() as box:
            assert (await box.exec("cat a")).stdout == "text"
            assert (await box.exec(processes.sleep(), timeout_s=0.5)).error_type == "timeout"
            task = asyncio.create_task(box.exec(processes.sleep()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    uvloop.run(play())
    assert processes.running() == []
