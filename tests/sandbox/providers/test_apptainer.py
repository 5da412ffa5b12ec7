# SPDX-License-Identifier: Apache-2.0
"""The apptainer provider against a stand-in for the `apptainer` program that really runs the commands."""

import asyncio
import json
import os
import time

import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxNotRunningError,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.apptainer import ApptainerCreateConfig, ApptainerProvider
from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxError

IMAGE = "python:3.12"


def sandbox(spec: SandboxSpec | None = None, **settings) -> AsyncSandbox:
    return AsyncSandbox({"apptainer": settings}, spec or SandboxSpec(image=IMAGE))


async def test_an_instance_is_started_and_stopped_with_these_arguments(apptainer):
    spec = SandboxSpec(image=IMAGE, resources=SandboxResources(cpu=2, memory_mib=512, gpu=1))
    config = ApptainerCreateConfig(network="none", fakeroot=True, binds=["/a:/b:ro"])
    async with AsyncSandbox(ApptainerProvider(config), spec) as box:
        name = box.sandbox_id
    arguments = (
        "--containall --writable-tmpfs --fakeroot --net --network none --cpus 2 --memory 512M --nv --bind /a:/b:ro"
    )
    assert apptainer.calls()[0] == ["instance", "start", *arguments.split(), "docker://python:3.12", name]
    assert apptainer.calls()[-1] == ["instance", "stop", "--signal", "SIGKILL", name]


@pytest.mark.parametrize("image", ["/images/x.sif", "./x.sif", "oras://host/x:1", "docker://y"])
async def test_a_file_or_a_reference_with_a_scheme_is_taken_as_it_is(apptainer, image):
    async with sandbox(SandboxSpec(image=image)):
        pass
    assert apptainer.calls("instance")[0][-2] == image


async def test_a_command_is_run_with_these_arguments(apptainer, tmp_path):
    workdir = tmp_path / "made" / "here"
    async with sandbox(SandboxSpec(image=IMAGE, workdir=str(workdir), env={"A": "1"})) as box:
        result = await box.exec("echo $A $B in $PWD", env={"B": "2"})
        name = box.sandbox_id
        assert (await box.exec("pwd", cwd=str(tmp_path))).stdout == f"{tmp_path}\n"
    assert result.stdout == f"1 2 in {workdir}\n"
    call = apptainer.calls("exec")[-2]
    assert call[:6] == ["exec", "--cleanenv", "--pwd", str(workdir), f"instance://{name}", "/bin/sh"]
    assert call[-2:] == ["sandbox", "echo $A $B in $PWD"]


async def test_no_value_of_a_variable_shows_on_a_command_line_and_none_of_ours_gets_in(apptainer, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "ours")
    async with sandbox(SandboxSpec(image=IMAGE, env={"ONE_TOKEN": "secret-1"})) as box:
        result = await box.exec('echo "$ONE_TOKEN $TWO_TOKEN[$OUR_SECRET]"', env={"TWO_TOKEN": "secret-2"})
        assert "secret" not in json.dumps(box.serialize())
    assert result.stdout == "secret-1 secret-2[]\n"
    assert "secret" not in json.dumps(apptainer.calls())


async def test_a_timeout_kills_what_runs_inside(apptainer, processes, until):
    async with sandbox() as box:
        result = await box.exec(f"echo begun; {processes.sleep()} & setsid {processes.sleep()}", timeout_s=1)
        assert (result.error_type, result.return_code, result.stdout) == ("timeout", 124, "begun\n")
        await until(lambda: not processes.running())
        assert (await box.exec("echo still here")).stdout == "still here\n"


async def test_cancelling_kills_what_runs_inside(apptainer, processes, until):
    async with sandbox() as box:
        task = asyncio.create_task(box.exec(processes.sleep()))
        await until(processes.running)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not processes.running())


async def test_files_go_in_and_come_out(apptainer, tmp_path):
    async with sandbox(SandboxSpec(image=IMAGE, files={str(tmp_path / "in" / "a"): "text"})) as box:
        await box.download(str(tmp_path / "in" / "a"), tmp_path / "back")
        await box.upload(tmp_path / "back", str(tmp_path / "in" / "b"))
    assert (tmp_path / "in" / "b").read_text() == "text"


async def test_the_entrypoint_runs_beside_the_commands(apptainer, processes, until):
    async with sandbox(SandboxSpec(image=IMAGE, entrypoint=processes.sleep())) as box:
        await until(processes.running)
        assert (await box.exec("echo hello")).stdout == "hello\n"
    await until(lambda: not processes.running())


async def test_an_instance_ends_with_its_time_to_live(apptainer, until):
    box = await sandbox(SandboxSpec(image=IMAGE, ttl_s=0.5)).start()
    await until(lambda: not apptainer.records())
    assert await box.status() is SandboxStatus.STOPPED
    with pytest.raises(SandboxNotRunningError, match="time to live"):
        await box.exec("true")
    await box.stop()


async def test_an_instance_whose_owner_died_is_stopped_once_its_time_is_over(apptainer):
    expired = apptainer.folder / f"nemo-gym-{int(time.time()) - 60}-abc.instance"
    others = [apptainer.folder / f"{name}.instance" for name in ("nemo-gym-0-abc", "somebody-else", "x-nemo-gym-1-y")]
    for path in (expired, *others):
        path.touch()
    async with sandbox():
        pass
    assert not expired.exists()
    assert all(path.exists() for path in others)


async def test_an_image_that_cannot_be_had_says_which_and_why(apptainer):
    with pytest.raises(SandboxCreateError, match=r"image 'no-such-image'(.|\n)*manifest unknown"):
        await sandbox(SandboxSpec(image="no-such-image")).start()
    assert apptainer.records() == []


async def test_a_sandbox_needs_an_image(apptainer):
    with pytest.raises(SandboxCreateError, match="needs an image"):
        await sandbox(SandboxSpec()).start()


async def test_a_missing_program_says_what_to_install():
    with pytest.raises(SandboxCreateError, match=r"'no-such-apptainer' cannot be run.*\nhint: install Apptainer"):
        await sandbox(executable="no-such-apptainer").start()


async def test_a_command_can_only_run_as_the_user_of_the_instance(apptainer):
    async with sandbox() as box:
        assert (await box.exec("true", user=os.getuid())).return_code == 0
        with pytest.raises(SandboxConfigError, match=r"cannot run a command as user 'somebody'.*\nhint: leave `user`"):
            await box.exec("true", user="somebody")


async def test_a_shared_network_makes_every_port_reachable_and_one_of_its_own_none(apptainer):
    async with sandbox() as box:
        assert (await box.endpoint(8000)).url == "http://127.0.0.1:8000"
    async with sandbox(create={"network": "none"}) as box:
        with pytest.raises(SandboxError, match="network of its own"):
            await box.endpoint(8000)


async def test_another_process_can_take_the_sandbox_up(apptainer, tmp_path):
    async with sandbox(SandboxSpec(image=IMAGE, workdir=str(tmp_path / "w"))) as box:
        state = json.loads(json.dumps(box.serialize()))
        other = await AsyncSandbox.connect({"apptainer": {}}, state)
        assert (await other.exec("pwd")).stdout == f"{tmp_path / 'w'}\n"
    with pytest.raises(SandboxNotRunningError, match="is not running"):
        await AsyncSandbox.connect({"apptainer": {}}, state)
