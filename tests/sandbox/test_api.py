# SPDX-License-Identifier: Apache-2.0
"""`AsyncSandbox` and `Sandbox` over a provider that keeps its sandboxes in memory, and over the local one."""

import asyncio
import threading

import pytest
import uvloop

from nemo_gym.sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxExecResult,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxSpec,
    SandboxStatus,
    register_provider,
)
from nemo_gym.sandbox.providers import registry
from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxError

LOCAL = {"local": {"isolation": "rlimits"}}


class Memory:
    """A provider as somebody else would write it: only what the protocol asks for."""

    name = "memory"

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    async def create(self, spec):
        self.calls.append(("create", spec))
        return SandboxHandle(sandbox_id="s1", provider_name=self.name, raw={})

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=180, user=None):
        self.calls.append(("exec", command, cwd, env, timeout_s, user))
        return SandboxExecResult(stdout=command, stderr="", return_code=0)

    async def upload_file(self, handle, source_path, target_path):
        self.calls.append(("upload", source_path, target_path))

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
    async with AsyncSandbox(memory, spec) as box:
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
        ("upload", "here", "/there"),
        ("download", "/there", "here"),
        ("close", "s1"),
    ]


async def test_a_spec_may_come_with_the_start_or_not_at_all(memory):
    spec = SandboxSpec(image="y")
    await AsyncSandbox(memory).start(spec)
    await AsyncSandbox(memory).start()
    assert memory.calls == [("create", spec), ("create", SandboxSpec())]


async def test_stopping_twice_does_no_harm_and_starting_twice_is_refused(memory):
    box = await AsyncSandbox(memory).start()
    with pytest.raises(SandboxError, match="'s1' is running already"):
        await box.start()
    await box.stop()
    await box.stop()
    assert memory.calls.count(("close", "s1")) == 1


@pytest.mark.parametrize("use", ["exec", "upload", "download", "serialize"])
async def test_a_sandbox_that_is_not_running_says_how_to_start_it(use):
    box = AsyncSandbox(LOCAL)
    calls = {
        "exec": lambda: box.exec("x"),
        "upload": lambda: box.upload("x", "y"),
        "download": lambda: box.download("x", "y"),
    }
    with pytest.raises(SandboxNotRunningError, match=r"not running\nhint: `await sandbox.start"):
        box.serialize() if use == "serialize" else await calls[use]()


async def test_a_provider_made_from_a_config_is_closed_with_the_sandbox(memory, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    register_provider("memory", lambda: memory)
    async with AsyncSandbox({"memory": {}}):
        pass
    assert memory.calls[-2:] == [("close", "s1"), ("aclose",)]


async def test_what_a_provider_does_not_offer_is_said(memory):
    async with AsyncSandbox(memory) as box:
        with pytest.raises(SandboxError, match="'memory' offers no endpoints"):
            await box.endpoint(80)
        with pytest.raises(SandboxError, match="'memory' cannot be handed on"):
            box.serialize()
    with pytest.raises(SandboxError, match="'memory' cannot be taken up"):
        await AsyncSandbox.connect(memory, {"provider": "memory"})
    with pytest.raises(SandboxConfigError, match="belongs to provider 'docker', not 'local'"):
        await AsyncSandbox.connect(LOCAL, {"provider": "docker"})


async def test_an_error_inside_still_stops_the_sandbox(memory):
    with pytest.raises(KeyError):
        async with AsyncSandbox(memory):
            raise KeyError
    assert memory.calls[-1] == ("close", "s1")


def play(tmp_path) -> str:
    with Sandbox(LOCAL, SandboxSpec(files={"a": "text"})) as box:
        assert box.status() is SandboxStatus.RUNNING
        box.download("a", tmp_path / "a")
        box.upload(tmp_path / "a", "b")
        other = Sandbox.connect(LOCAL, box.serialize())
        return other.exec("cat a b").stdout


def test_the_same_works_without_an_event_loop(tmp_path):
    before = threading.active_count()
    assert play(tmp_path) == "texttext"
    box = Sandbox(LOCAL).start()
    box.stop()
    box.stop()
    assert box.status() is SandboxStatus.STOPPED
    del box
    assert threading.active_count() == before


async def test_the_same_works_while_an_event_loop_runs(tmp_path):
    assert play(tmp_path) == "texttext"
    assert await asyncio.to_thread(play, tmp_path) == "texttext"


def test_errors_cross_from_the_loop_to_the_caller():
    with Sandbox(LOCAL) as box, pytest.raises(SandboxError, match="offers no endpoints"):
        box.endpoint(80)


def test_it_works_on_the_event_loop_that_servers_run_on(processes):
    async def play() -> None:
        async with AsyncSandbox(LOCAL, SandboxSpec(files={"a": "text"})) as box:
            assert (await box.exec("cat a")).stdout == "text"
            assert (await box.exec(processes.sleep(), timeout_s=0.5)).error_type == "timeout"
            task = asyncio.create_task(box.exec(processes.sleep()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    uvloop.run(play())
    assert processes.running() == []
