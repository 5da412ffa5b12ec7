# SPDX-License-Identifier: Apache-2.0
"""The docker provider against a stand-in for the `docker` program that really runs the commands."""

import asyncio
import json
import os
import stat

import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxNotRunningError,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SandboxTransferError,
)
from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxError
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerProvider
from nemo_gym.sandbox.providers.docker.provider import MAIN_PROCESS

IMAGE = "python:3.12"


def sandbox(spec: SandboxSpec | None = None, **settings) -> AsyncSandbox:
    return AsyncSandbox({"docker": settings}, spec or SandboxSpec(image=IMAGE))


async def test_a_container_is_started_with_these_arguments(docker, tmp_path):
    spec = SandboxSpec(
        image=IMAGE,
        ttl_s=3600,
        workdir=str(tmp_path / "w"),
        env={"API_KEY": "hidden", "PATH": os.environ["PATH"]},
        metadata={"task": "7"},
        resources=SandboxResources(cpu=1.5, memory_mib=512, gpu=2),
        ports=[8000],
    )
    create = DockerCreateConfig(network="none", user="1000", volumes=["/a:/b:ro"], extra_args=["--shm-size", "1g"])
    async with AsyncSandbox(DockerProvider(create), spec) as box:
        name = box.sandbox_id
    (call,) = docker.calls("run")
    arguments = "--detach --rm --init --name {name} --label nemo_gym.sandbox={name} --label nemo_gym.metadata.task=7"
    arguments += " --pull missing --pids-limit 4096 --security-opt no-new-privileges --network none --user 1000"
    arguments += " --cpus 1.5 --memory 512m --memory-swap 512m --gpus 2 --workdir {workdir} --env API_KEY"
    arguments += " --env PATH={path} --volume /a:/b:ro --publish 127.0.0.1::8000 --shm-size 1g --entrypoint /bin/sh"
    words = [word.format(name=name, workdir=spec.workdir, path=spec.env["PATH"]) for word in arguments.split()]
    assert call == ["run", *words, IMAGE, "-c", 'exec sleep "$1"', "sandbox", "3600"]
    assert docker.calls("rm") == [["rm", "--force", "--volumes", name]]


async def test_a_command_is_run_with_these_arguments(docker, tmp_path):
    async with sandbox() as box:
        result = await box.exec("echo $A in $PWD", cwd=str(tmp_path), env={"A": "x y"}, user="root")
        name = box.sandbox_id
    assert result.stdout == f"x y in {tmp_path}\n"
    call = docker.calls("exec")[-1]
    mark = call[8]
    assert call[:8] == ["exec", "--workdir", str(tmp_path), "--user", "root", "--env", "A", "--env"]
    assert mark.startswith("NEMO_GYM_EXEC_ID=")
    assert call[9:12] == [name, "/bin/sh", "-c"]
    assert call[13:] == ["sandbox", "echo $A in $PWD"]


async def test_no_value_of_a_variable_shows_on_a_command_line(docker):
    async with sandbox(SandboxSpec(image=IMAGE, env={"ONE_TOKEN": "secret-1"})) as box:
        result = await box.exec('echo "$ONE_TOKEN $TWO_TOKEN"', env={"TWO_TOKEN": "secret-2\nline"})
    assert result.stdout == "secret-1 secret-2\nline\n"
    assert "secret" not in json.dumps(docker.calls())


async def test_options_of_a_spec_override_the_providers_settings(docker):
    spec = SandboxSpec(image=IMAGE, provider_options={"network": "none", "pull": "never"})
    async with sandbox(spec, create={"network": "bridge"}):
        pass
    (call,) = docker.calls("run")
    assert call[call.index("--network") + 1] == "none"
    assert call[call.index("--pull") + 1] == "never"


async def test_an_unknown_setting_is_named_before_anything_starts(docker):
    message = r"'netwrok'\nit has: network, pull"
    with pytest.raises(SandboxConfigError, match=message):
        DockerProvider({"netwrok": "none"})
    with pytest.raises(SandboxConfigError, match=message):
        await sandbox(SandboxSpec(image=IMAGE, provider_options={"netwrok": "none"})).start()
    assert docker.calls() == []


async def test_the_result_is_what_the_command_did(docker):
    async with sandbox() as box:
        result = await box.exec("echo out; printf 'bad \\377 byte' >&2; exit 3")
        assert (result.stdout, result.stderr, result.return_code) == ("out\n", "bad � byte", 3)
        assert result.error_type is None
        assert (await box.exec(["printf", "%s|", "a b", "$HOME"])).stdout == "a b|$HOME|"
        assert (await box.exec("[[ a == a ]] && echo bash")).stdout == "bash\n"


async def test_a_timeout_kills_what_runs_inside(docker, processes, until):
    async with sandbox() as box:
        result = await box.exec(f"echo begun; {processes.sleep()} & setsid {processes.sleep()}", timeout_s=1)
        assert (result.error_type, result.return_code, result.stdout) == ("timeout", 124, "begun\n")
        await until(lambda: not processes.running())
        assert (await box.exec("echo still here")).stdout == "still here\n"


async def test_cancelling_kills_what_runs_inside(docker, processes, until):
    async with sandbox() as box:
        task = asyncio.create_task(box.exec(processes.sleep()))
        await until(processes.running)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not processes.running())


async def test_a_killed_command_in_a_container_out_of_memory_says_so(docker):
    async with sandbox(SandboxSpec(image="oom-image")) as box:
        assert (await box.exec("kill -9 $$")).error_type == "oom"
    async with sandbox() as box:
        result = await box.exec("kill -9 $$")
        assert (result.return_code, result.error_type) == (137, None)


async def test_output_is_bounded(docker):
    async with sandbox(max_output_bytes=20_000) as box:
        result = await box.exec("seq 1 100000")
    assert len(result.stdout) < 20_100
    assert result.stdout.startswith("1\n2\n")
    assert result.stdout.endswith("100000\n")


async def test_files_go_in_and_come_out(docker, tmp_path):
    local, inside, back = tmp_path / "tool.sh", tmp_path / "deep" / "er" / "tool.sh", tmp_path / "new" / "back"
    local.write_bytes(b"#!/bin/sh\necho \xff tool\n")
    local.chmod(0o755)
    async with sandbox() as box:
        await box.upload(local, str(inside))
        assert stat.S_IMODE(inside.stat().st_mode) == 0o755
        await box.download(str(inside), back)
    assert back.read_bytes() == local.read_bytes()
    assert [path.name for path in back.parent.iterdir()] == ["back"]


async def test_folders_go_in_and_come_out(docker, tmp_path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "a").write_text("A")
    (source / "sub" / "b").write_text("B")
    target = tmp_path / "back"
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "kept").write_text("K")
    async with sandbox() as box:
        await box.upload(source, str(tmp_path / "inside"))
        await box.download(str(tmp_path / "inside"), target)
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == {"a", "sub", "sub/b", "sub/kept"}
    assert (target / "sub" / "b").read_text() == "B"


async def test_a_download_that_fails_leaves_nothing_half_written(docker, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "result").write_text("old")
    async with sandbox() as box:
        with pytest.raises(SandboxTransferError, match=r"download '/no/such' to .*No such file"):
            await box.download("/no/such", out / "result")
        with pytest.raises(SandboxTransferError, match="No such file"):
            await box.upload(tmp_path / "missing", "/x")
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("result", "old")]


async def test_an_archive_cannot_reach_outside_the_folder_it_is_unpacked_to(docker, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to("/etc/passwd")
    async with sandbox() as box:
        with pytest.raises(SandboxTransferError):
            await box.download(str(inside), tmp_path / "out" / "x")
    assert not list((tmp_path / "out").iterdir())


async def test_files_of_the_spec_are_there_when_it_starts(docker, tmp_path):
    local = tmp_path / "local"
    local.write_text("from a file")
    files = {str(tmp_path / "i" / "a"): "text é", str(tmp_path / "i" / "b"): b"\xff", str(tmp_path / "i" / "c"): local}
    async with sandbox(SandboxSpec(image=IMAGE, files=files)):
        contents = [(tmp_path / "i" / name).read_bytes() for name in "abc"]
    assert contents == ["text é".encode(), b"\xff", b"from a file"]


async def test_a_published_port_has_an_endpoint(docker):
    async with sandbox(SandboxSpec(image=IMAGE, ports=[8000, 9000])) as box:
        endpoint = await box.endpoint(9000)
        assert (endpoint.url, endpoint.port) == ("http://127.0.0.1:49001", 49001)
        with pytest.raises(SandboxError, match=r"port 1 of sandbox .* is not published.*\nhint: .*ports: \[1\]"):
            await box.endpoint(1)


async def test_the_status_follows_the_container(docker, until):
    box = sandbox()
    assert await box.status() is SandboxStatus.STOPPED
    await box.start()
    assert await box.status() is SandboxStatus.RUNNING
    handle = box.handle
    await box.stop()
    assert await box.status() is SandboxStatus.STOPPED
    assert await box.provider.status(handle) is SandboxStatus.STOPPED
    await box.provider.close(handle)


async def test_the_main_process_ends_with_the_time_to_live(docker, processes, until):
    entrypoint = ["sh", "-c", "while :; do sleep 600; done", processes.token]
    spec = SandboxSpec(image=IMAGE, ttl_s=1, entrypoint=entrypoint)
    box = await sandbox(spec).start()
    (call,) = docker.calls("run")
    assert call[-7:] == [MAIN_PROCESS, "sandbox", "1", *entrypoint]
    await until(lambda: not processes.running())
    assert await box.status() is SandboxStatus.STOPPED
    await box.stop()


async def test_a_command_in_a_container_that_is_gone_is_an_error_not_a_result(docker):
    box = await sandbox().start()
    await box.provider.close(box.handle)
    with pytest.raises(SandboxNotRunningError, match="No such container"):
        await box.exec("true")
    await box.stop()


async def test_a_command_that_talks_like_the_engine_is_a_result(docker):
    async with sandbox() as box:
        result = await box.exec("echo 'Error response from daemon: No such container: x' >&2; exit 1")
    assert result.return_code == 1


async def test_an_engine_out_of_reach_is_an_error_that_says_what_to_check(docker):
    box = await sandbox().start()
    (docker.folder / "daemon-is-down").touch()
    with pytest.raises(SandboxNotRunningError, match=r"Cannot connect .*\nhint: is the engine running"):
        await box.exec("true")
    with pytest.raises(SandboxCreateError, match="Cannot connect"):
        await sandbox().start()
    (docker.folder / "daemon-is-down").unlink()
    await box.stop()


async def test_an_image_that_cannot_be_had_says_which_and_why(docker):
    with pytest.raises(SandboxCreateError, match=r"image 'no-such-image'.*exit code 125\n(.|\n)*pull access denied"):
        await sandbox(SandboxSpec(image="no-such-image")).start()
    assert docker.records() == []


async def test_a_sandbox_that_is_not_ready_in_time_is_removed(docker):
    with pytest.raises(SandboxCreateError, match=r"not ready after 0\.3 s(.|\n)*hint: raise `ready_timeout_s`"):
        await sandbox(SandboxSpec(image="slow", ready_timeout_s=0.3)).start()
    assert docker.calls()[-1][:3] == ["rm", "--force", "--volumes"]


async def test_cancelling_the_start_removes_the_container(docker, until):
    task = asyncio.create_task(sandbox(SandboxSpec(image="slow")).start())
    await until(lambda: list(docker.folder.glob("*.pulling")))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert docker.calls()[-1][:3] == ["rm", "--force", "--volumes"]


async def test_a_file_that_cannot_be_placed_removes_the_container(docker):
    with pytest.raises(SandboxTransferError, match="write '/proc/x'"):
        await sandbox(SandboxSpec(image=IMAGE, files={"/proc/x": "x"})).start()
    assert docker.records() == []


async def test_a_sandbox_needs_an_image(docker):
    with pytest.raises(SandboxCreateError, match="needs an image"):
        await sandbox(SandboxSpec()).start()


async def test_a_missing_program_says_what_to_install():
    with pytest.raises(SandboxCreateError, match=r"'no-such-docker' cannot be run.*\nhint: install Docker Engine"):
        await sandbox(executable="no-such-docker").start()


async def test_another_process_can_take_the_sandbox_up(docker):
    async with sandbox() as box:
        state = json.loads(json.dumps(box.serialize()))
        other = await AsyncSandbox.connect({"docker": {}}, state)
        assert other.sandbox_id == box.sandbox_id
        assert (await other.exec("echo hello")).stdout == "hello\n"
    with pytest.raises(SandboxNotRunningError, match="is not running"):
        await AsyncSandbox.connect({"docker": {}}, state)
