# SPDX-License-Identifier: Apache-2.0
"""The docker provider against a stand-in for the `docker` program that really runs the commands."""

import asyncio
import json
import os
import re
import stat

import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxNotRunningError,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SandboxTransferError,
)
from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxError
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerProbeConfig, DockerProvider
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
        provider_options={"volumes": ["/a:/b:ro"], "run_args": ["--pull", "never"]},
    )
    create = DockerCreateConfig(
        network="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["seccomp=x"],
        extra_run_args=["--shm-size", "1g"],
    )
    box = await AsyncSandbox(DockerProvider(create=create), spec).start()
    name = box.sandbox_id
    await box.stop()
    (call,) = docker.calls("run")
    arguments = "-d --name {name} --label nemo-gym.sandbox=1 --label nemo-gym.sandbox.task=7 --init -w {workdir}"
    arguments += " --env API_KEY --env PATH={path} --cpus 1.5 --memory 512m --memory-swap 512m --gpus 2 --network none"
    arguments += " --read-only --cap-drop ALL --security-opt seccomp=x --security-opt no-new-privileges"
    arguments += " --pids-limit 4096 --publish 127.0.0.1::8000/tcp -v /a:/b:ro --shm-size 1g --pull never --rm"
    words = [word.format(name=name, workdir=spec.workdir, path=spec.env["PATH"]) for word in arguments.split()]
    main = ["/bin/sh", "-c", "exec sleep 2147483647"]
    assert call == ["run", *words, "--entrypoint", "/bin/sh", IMAGE, "-c", MAIN_PROCESS, "sandbox", "3600", *main]
    assert docker.calls("rm") == [["rm", "--force", "--volumes", name]]


async def test_a_container_with_default_settings_is_started_with_these_arguments(docker):
    async with await sandbox().start():
        (call,) = docker.calls("run")
    name = call[3]
    assert re.fullmatch(r"nemo-gym-[0-9a-f]{32}", name)
    arguments = f"-d --name {name} --label nemo-gym.sandbox=1 --init --security-opt no-new-privileges"
    arguments += f" --pids-limit 4096 --rm --entrypoint /bin/sh {IMAGE} -c"
    assert call == ["run", *arguments.split(), "exec sleep 2147483647"]


async def test_limits_and_safeguards_can_be_left_off(docker):
    spec = SandboxSpec(image=IMAGE, entrypoint=["sleep", "600"], resources={"cpu": 1, "memory_mib": 5, "gpu": 1})
    create = {"apply_resource_limits": False, "use_init": False, "pids_limit": -1}
    async with await sandbox(spec, create={**create, "security_opt": ["no-new-privileges=false"]}).start():
        (call,) = docker.calls("run")
    assert call[6:] == [
        *("--gpus", "1", "--security-opt", "no-new-privileges=false", "--pids-limit", "-1", "--rm"),
        *("--entrypoint", "sleep", IMAGE, "600"),
    ]


async def test_a_command_is_run_with_these_arguments(docker, tmp_path):
    settings = {"extra_exec_args": ["--privileged"]}
    async with await sandbox(exec=settings).start() as box:
        result = await box.exec("echo $A in $PWD", cwd=str(tmp_path), env={"A": "x y"}, user="root")
        name = box.sandbox_id
    assert result.stdout == f"x y in {tmp_path}\n"
    call = docker.calls("exec")[-1]
    assert call[:6] == ["exec", "-w", str(tmp_path), "--env", "A", "--env"]
    assert call[6].startswith("NEMO_GYM_EXEC_ID=")
    assert call[7:] == ["--user", "root", "--privileged", name, "bash", "-c", "echo $A in $PWD"]


async def test_the_shell_of_commands_can_be_chosen(docker):
    async with await sandbox(exec={"exec_shell": "dash"}).start() as box:
        assert (await box.exec("echo $0")).stdout == "dash\n"


async def test_a_probe_that_never_succeeds_removes_the_container(docker):
    probe = {"command": "echo nothing", "expected_stdout": "something"}
    with pytest.raises(
        SandboxCreateVerificationError, match=r"probe 'echo nothing'\n.*'nothing\\n'(.|\n)*hint: set `probe"
    ):
        await sandbox(probe=probe).start()
    assert docker.records() == []


async def test_a_probe_may_have_to_succeed_several_times(docker, tmp_path):
    count = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) != 2 && echo ready"
    probe = DockerProbeConfig(command=count, stable_count=2, deadline_s=60, stable_delay_s=0.01)
    async with await sandbox(probe=probe).start():
        pass
    assert (tmp_path / "tries").read_text() == "x\n" * 4


async def test_only_so_many_commands_run_at_a_time(docker, tmp_path):
    async with await sandbox(exec={"concurrency": 1}).start() as box:
        alone = f"mkdir {tmp_path}/one && sleep 0.05 && rmdir {tmp_path}/one"
        results = await asyncio.gather(*(box.exec(alone) for _ in range(3)))
    assert [result.return_code for result in results] == [0, 0, 0]


async def test_the_default_deadline_is_that_of_the_provider(docker, processes):
    async with await sandbox(exec={"default_timeout_s": 0.5}).start() as box:
        assert (await box.exec(processes.sleep(), timeout_s=None)).error_type == "timeout"


async def test_no_value_of_a_variable_shows_on_a_command_line(docker):
    async with await sandbox(SandboxSpec(image=IMAGE, env={"ONE_TOKEN": "secret-1"})).start() as box:
        result = await box.exec('echo "$ONE_TOKEN $TWO_TOKEN"', env={"TWO_TOKEN": "secret-2\nline"})
    assert result.stdout == "secret-1 secret-2\nline\n"
    assert "secret" not in json.dumps(docker.calls())


async def test_options_of_a_spec_override_the_providers_settings(docker):
    spec = SandboxSpec(image=IMAGE, provider_options={"network": "none", "pids_limit": 7})
    async with await sandbox(spec, create={"network": "bridge"}).start():
        pass
    (call,) = docker.calls("run")
    assert call[call.index("--network") + 1] == "none"
    assert call[call.index("--pids-limit") + 1] == "7"


async def test_an_unknown_setting_is_named_before_anything_starts(docker):
    message = r"'netwrok' in Docker\w+\nit has: keepalive_shell, "
    with pytest.raises(SandboxConfigError, match=message):
        DockerProvider(create={"netwrok": "none"})
    with pytest.raises(TypeError, match="a mapping or a DockerExecConfig, not str"):
        DockerProvider(exec="fast")
    with pytest.raises(SandboxConfigError, match=message):
        await sandbox(SandboxSpec(image=IMAGE, provider_options={"netwrok": "none"})).start()
    assert docker.calls() == []


async def test_the_result_is_what_the_command_did(docker):
    async with await sandbox().start() as box:
        result = await box.exec("echo out; printf 'bad \\377 byte' >&2; exit 3")
        assert (result.stdout, result.stderr, result.return_code) == ("out\n", "bad � byte", 3)
        assert result.error_type is None
        assert (await box.exec(["printf", "%s|", "a b", "$HOME"])).stdout == "a b|$HOME|"
        assert (await box.exec("[[ a == a ]] && echo bash")).stdout == "bash\n"


async def test_a_killed_command_in_a_container_out_of_memory_says_so(docker):
    async with await sandbox(SandboxSpec(image="oom-image")).start() as box:
        assert (await box.exec("kill -9 $$")).error_type == "oom"
    async with await sandbox().start() as box:
        result = await box.exec("kill -9 $$")
        assert (result.return_code, result.error_type) == (137, None)


async def test_output_is_bounded(docker):
    async with await sandbox(max_output_bytes=20_000).start() as box:
        result = await box.exec("seq 1 100000")
    assert len(result.stdout) < 20_100
    assert result.stdout.startswith("1\n2\n")
    assert result.stdout.endswith("100000\n")


async def test_files_go_in_and_come_out(docker, tmp_path):
    local, inside, back = tmp_path / "tool.sh", tmp_path / "deep" / "er" / "tool.sh", tmp_path / "new" / "back"
    local.write_bytes(b"#!/bin/sh\necho \xff tool\n")
    local.chmod(0o755)
    async with await sandbox().start() as box:
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
    async with await sandbox().start() as box:
        await box.upload(source, str(tmp_path / "inside"))
        await box.download(str(tmp_path / "inside"), target)
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == {"a", "sub", "sub/b", "sub/kept"}
    assert (target / "sub" / "b").read_text() == "B"


async def test_a_download_that_fails_leaves_nothing_half_written(docker, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "result").write_text("old")
    async with await sandbox().start() as box:
        with pytest.raises(SandboxTransferError, match=r"download '/no/such' to .*No such file"):
            await box.download("/no/such", out / "result")
        with pytest.raises(SandboxTransferError, match="No such file"):
            await box.upload(tmp_path / "missing", "/x")
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("result", "old")]


async def test_an_archive_cannot_reach_outside_the_folder_it_is_unpacked_to(docker, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to("/etc/passwd")
    async with await sandbox().start() as box:
        with pytest.raises(SandboxTransferError):
            await box.download(str(inside), tmp_path / "out" / "x")
    assert not list((tmp_path / "out").iterdir())


async def test_files_of_the_spec_are_there_when_it_starts(docker, tmp_path):
    local = tmp_path / "local"
    local.write_text("from a file")
    files = {str(tmp_path / "i" / "a"): "text é", str(tmp_path / "i" / "b"): b"\xff", str(tmp_path / "i" / "c"): local}
    async with await sandbox(SandboxSpec(image=IMAGE, files=files)).start():
        contents = [(tmp_path / "i" / name).read_bytes() for name in "abc"]
    assert contents == ["text é".encode(), b"\xff", b"from a file"]


async def test_a_published_port_has_an_endpoint(docker):
    async with await sandbox(SandboxSpec(image=IMAGE, ports=[8000, 9000])).start() as box:
        endpoint = await box.endpoint(9000)
        assert endpoint.endpoint == "http://127.0.0.1:49001"
        with pytest.raises(SandboxError, match=r"port 1 of sandbox .* is not published.*\nhint: .*ports: \[1\]"):
            await box.provider.endpoint(box.handle, 1)
    async with await sandbox(SandboxSpec(image=IMAGE, ports=[80]), create={"publish_host": "0.0.0.0"}).start() as box:
        assert (await box.endpoint(80)).endpoint == "http://127.0.0.1:49000"


async def test_the_status_follows_the_container(docker, until):
    box = sandbox()
    assert await box.status() is SandboxStatus.UNKNOWN
    await box.start()
    assert await box.status() is SandboxStatus.RUNNING
    handle = box.handle
    await box.stop()
    assert await box.status() is SandboxStatus.STOPPED
    assert await box.provider.status(handle) is SandboxStatus.STOPPED
    await box.provider.close(handle)


async def test_the_main_process_ends_with_the_time_to_live(docker, processes, until):
    # A second passes when the test says so, however long the container takes to start.
    over = docker.folder / "the second is over"
    sleep = docker.folder / "sleep"
    sleep.write_text(f'#!/bin/sh\nuntil [ "$1" = 1 ] && [ -e "{over}" ]; do /bin/sleep 0.02; done\n')
    sleep.chmod(0o755)
    entrypoint = ["sh", "-c", "while :; do sleep 600; done", processes.token]
    spec = SandboxSpec(image=IMAGE, ttl_s=1, entrypoint=entrypoint)
    box = await sandbox(spec).start()
    (call,) = docker.calls("run")
    assert call[-7:] == [MAIN_PROCESS, "sandbox", "1", *entrypoint]
    assert processes.running()
    over.touch()
    await until(lambda: not processes.running())
    assert await box.status() is SandboxStatus.STOPPED
    await box.stop()


async def test_a_command_in_a_container_that_is_gone_failed_for_the_sandbox(docker):
    box = await sandbox().start()
    await box.provider.close(box.handle)
    result = await box.exec("true")
    assert (result.return_code, result.error_type, result.stdout) == (125, "sandbox", None)
    assert "No such container" in result.stderr
    await box.stop()


async def test_a_command_that_talks_like_the_engine_is_a_result(docker):
    async with await sandbox().start() as box:
        result = await box.exec("echo 'Error response from daemon: No such container: x' >&2; exit 1")
    assert result.return_code == 1


async def test_an_engine_out_of_reach_failed_for_the_sandbox_and_says_what_to_check(docker):
    box = await sandbox().start()
    (docker.folder / "daemon-is-down").touch()
    result = await box.exec("true")
    assert (result.return_code, result.error_type) == (125, "sandbox")
    assert re.search(r"Cannot connect .*\nhint: check with `docker info`", result.stderr)
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
    with pytest.raises(SandboxTransferError, match="to '/proc/x'"):
        await sandbox(SandboxSpec(image=IMAGE, files={"/proc/x": "x"})).start()
    assert docker.records() == []


async def test_a_missing_program_says_what_to_install():
    with pytest.raises(SandboxCreateError, match=r"'no-such-docker' is missing.*\nhint: install Docker Engine"):
        sandbox(executable="no-such-docker")


async def test_another_process_can_take_the_sandbox_up(docker):
    async with await sandbox().start() as box:
        state = json.loads(json.dumps(await box.serialize()))
        other = await AsyncSandbox.connect(state, provider={"docker": {}})
        assert other.sandbox_id == box.sandbox_id
        assert (await other.exec("echo hello")).stdout == "hello\n"
    with pytest.raises(SandboxNotRunningError, match="is not running"):
        await AsyncSandbox.connect(state, provider={"docker": {}})
