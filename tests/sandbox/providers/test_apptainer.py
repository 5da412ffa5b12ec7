# SPDX-License-Identifier: Apache-2.0
"""The apptainer provider against a stand-in for the `apptainer` program that really runs the commands."""

import asyncio
import json
import os
import stat
import tempfile
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
from nemo_gym.sandbox.providers.apptainer import ApptainerCreateConfig, ApptainerExecConfig, ApptainerProvider
from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxError

pytestmark = pytest.mark.thorough

IMAGE = "python:3.12"


def sandbox(spec: SandboxSpec | None = None, **settings) -> AsyncSandbox:
    return AsyncSandbox({"apptainer": settings}, spec or SandboxSpec(image=IMAGE))


async def test_an_instance_is_started_and_stopped_with_these_arguments(apptainer):
    spec = SandboxSpec(
        image=IMAGE,
        env={"A": "it's $HOME"},
        resources=SandboxResources(cpu=2, memory_mib=512, gpu=1),
        provider_options={"binds": ["/c:/d"]},
    )
    provider = ApptainerProvider(
        exec=ApptainerExecConfig(default_binds=["/a:/b:ro"]),
        create=ApptainerCreateConfig(extra_start_args=["--net", "--network", "none"]),
    )
    async with await AsyncSandbox(provider, spec).start() as box:
        name = box.sandbox_id
        staging = f"{tempfile.gettempdir()}/{name}"
        assert stat.S_IMODE(os.stat(staging).st_mode) == 0o700
        assert (apptainer.folder / f"{name}.instance").read_text() == "A='it'\"'\"'s $HOME'\n"
    started = apptainer.calls()[0]
    env_file = started[-3]
    arguments = f"--containall --writable-tmpfs --bind {staging}:/sandbox --bind /a:/b:ro --bind /c:/d"
    arguments += f" --cpus 2 --memory 512M --nv --net --network none --no-eval --env-file {env_file}"
    assert started == ["instance", "start", *arguments.split(), "docker://python:3.12", name]
    assert apptainer.calls()[-1] == ["instance", "stop", "--signal", "SIGKILL", name]
    assert not {os.path.basename(path) for path in (staging, env_file)} & set(os.listdir(tempfile.gettempdir()))


async def test_an_instance_without_any_wish_is_started_with_these_arguments(apptainer):
    spec = SandboxSpec(image=IMAGE, resources={"cpu": 1, "memory_mib": 5})
    create = {"apply_resource_limits": False, "mount_point": "/mine", "extra_start_args": ["--overlay", "/o"]}
    async with await sandbox(spec, create=create).start() as box:
        own = f"{tempfile.gettempdir()}/{box.sandbox_id}:/mine"
        image = "docker://python:3.12"
        arguments = ["--containall", "--bind", own, "--overlay", "/o", image, box.sandbox_id]
        assert apptainer.calls()[0] == ["instance", "start", *arguments]


@pytest.mark.parametrize("image", ["/images/x.sif", "./x.sif", "oras://host/x:1", "docker://y"])
async def test_a_file_or_a_reference_with_a_scheme_is_taken_as_it_is(apptainer, image):
    async with await sandbox(SandboxSpec(image=image)).start():
        pass
    assert apptainer.calls("instance")[0][-2] == image


async def test_a_command_is_run_with_these_arguments(apptainer, tmp_path):
    workdir = tmp_path / "made" / "here"
    spec = SandboxSpec(image=IMAGE, workdir=str(workdir), env={"A": 1})
    async with await sandbox(spec, exec={"extra_exec_args": ["--nv"]}).start() as box:
        result = await box.exec("echo $A $B in $PWD", env={"B": "2"})
        name = box.sandbox_id
        assert (await box.exec("pwd", cwd=str(tmp_path))).stdout == f"{tmp_path}\n"
    assert result.stdout == f"1 2 in {workdir}\n"
    call = apptainer.calls("exec")[-2]
    command = ["sh", "-c", "echo $A $B in $PWD"]
    assert call == ["exec", "--cleanenv", "--pwd", str(workdir), "--nv", f"instance://{name}", *command]


async def test_no_value_of_a_variable_shows_on_a_command_line_and_none_of_ours_gets_in(apptainer, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "ours")
    async with await sandbox(SandboxSpec(image=IMAGE, env={"ONE_TOKEN": "secret-1"})).start() as box:
        result = await box.exec('echo "$ONE_TOKEN $TWO_TOKEN[$OUR_SECRET]"', env={"TWO_TOKEN": "secret-2"})
        assert "secret" not in json.dumps(await box.serialize())
    assert result.stdout == "secret-1 secret-2[]\n"
    assert "secret" not in json.dumps(apptainer.calls())


async def test_files_go_in_and_come_out(apptainer, tmp_path):
    async with await sandbox(SandboxSpec(image=IMAGE, files={str(tmp_path / "in" / "a"): "text"})).start() as box:
        await box.download(str(tmp_path / "in" / "a"), tmp_path / "back")
        await box.upload(tmp_path / "back", str(tmp_path / "in" / "b"))
    assert (tmp_path / "in" / "b").read_text() == "text"


async def test_the_entrypoint_runs_beside_the_commands(apptainer, processes, until):
    async with await sandbox(SandboxSpec(image=IMAGE, entrypoint=processes.sleep())).start() as box:
        await until(processes.running)
        assert (await box.exec("echo hello")).stdout == "hello\n"
    await until(lambda: not processes.running())


async def test_an_instance_ends_with_its_time_to_live(apptainer, until):
    box = await sandbox(SandboxSpec(image=IMAGE, ttl_s=0.5)).start()
    await until(lambda: not apptainer.records())
    assert await box.status() is SandboxStatus.STOPPED
    result = await box.exec("true")
    assert (result.return_code, result.error_type) == (125, "sandbox")
    assert "time to live" in result.stderr
    await box.stop()


async def test_the_time_to_live_begins_when_the_instance_is_ready(apptainer, monkeypatch):
    provider = ApptainerProvider()
    verify = provider._verify

    async def take_long(handle, what):
        await asyncio.sleep(0.1)
        await verify(handle, what)

    monkeypatch.setattr(provider, "_verify", take_long)
    box = await AsyncSandbox(provider, SandboxSpec(image=IMAGE, ttl_s=0.05)).start()
    await box.stop()
    await provider.aclose()


async def test_the_time_to_live_holds_also_after_another_sandbox_of_the_provider_stopped(apptainer, until):
    provider = ApptainerProvider()
    await AsyncSandbox(provider, SandboxSpec(image=IMAGE, ttl_s=1)).start()
    async with await AsyncSandbox(provider, SandboxSpec(image=IMAGE)).start():
        pass
    await until(lambda: not apptainer.records())
    await provider.aclose()


async def test_an_instance_whose_owner_died_is_stopped_once_its_time_is_over(apptainer):
    expired = apptainer.folder / f"nemo-gym-{int(time.time()) - 60}-abc.instance"
    others = [apptainer.folder / f"{name}.instance" for name in ("nemo-gym-0-abc", "somebody-else", "x-nemo-gym-1-y")]
    for path in (expired, *others):
        path.touch()
    async with await sandbox().start():
        pass
    assert not expired.exists()
    assert all(path.exists() for path in others)


async def test_an_image_that_cannot_be_had_says_which_and_why(apptainer):
    with pytest.raises(SandboxCreateError, match=r"image 'no-such-image'(.|\n)*manifest unknown"):
        await sandbox(SandboxSpec(image="no-such-image")).start()
    assert apptainer.records() == []


async def test_a_missing_program_says_what_to_install():
    with pytest.raises(SandboxCreateError, match=r"'no-such-apptainer' is missing.*\nhint: install Apptainer"):
        sandbox(bin_path="no-such-apptainer")


def test_singularity_is_used_where_there_is_no_apptainer(apptainer, monkeypatch):
    (apptainer.folder / "apptainer").rename(apptainer.folder / "singularity")
    monkeypatch.setenv("PATH", str(apptainer.folder))
    assert ApptainerProvider()._executable == str(apptainer.folder / "singularity")


async def test_a_command_runs_as_the_user_of_the_instance_or_as_root_by_a_mapping(apptainer):
    async with await sandbox().start() as box:
        assert (await box.exec("true", user="root")).return_code == 0
        assert "--fakeroot" in apptainer.calls("exec")[-1]
        assert (await box.exec("true")).return_code == 0
        assert "--fakeroot" not in apptainer.calls("exec")[-1]
        with pytest.raises(SandboxConfigError, match=r"cannot run a command as user 'somebody'.*\nhint: leave `user`"):
            await box.exec("true", user="somebody")
    async with await sandbox(exec={"fakeroot_for_root": False}).start() as box:
        assert (await box.exec("true", user=os.getuid())).return_code == 0
        assert "--fakeroot" not in apptainer.calls("exec")[-1]


async def test_a_shared_network_makes_every_port_reachable_and_one_of_its_own_none(apptainer):
    spec = SandboxSpec(image=IMAGE, ports=[8000])
    async with await sandbox(spec).start() as box:
        assert (await box.endpoint(8000)).endpoint == "http://127.0.0.1:8000"
    async with await sandbox(spec, create={"extra_start_args": ["--net"]}).start() as box:
        with pytest.raises(SandboxError, match="network of its own"):
            await box.endpoint(8000)


async def test_another_process_can_take_the_sandbox_up(apptainer, tmp_path):
    async with await sandbox(SandboxSpec(image=IMAGE, workdir=str(tmp_path / "w"))).start() as box:
        state = json.loads(json.dumps(await box.serialize()))
        other = await AsyncSandbox.connect(state, provider={"apptainer": {}})
        assert (await other.exec("pwd")).stdout == f"{tmp_path / 'w'}\n"
    with pytest.raises(SandboxNotRunningError, match="is not running"):
        await AsyncSandbox.connect(state, provider={"apptainer": {}})
