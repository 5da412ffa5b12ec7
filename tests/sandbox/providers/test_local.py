# SPDX-License-Identifier: Apache-2.0
"""The local provider for real: without bubblewrap always, with it where it is installed."""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxNotRunningError,
    SandboxPtySpec,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SandboxTransferError,
)
from nemo_gym.sandbox.providers.base import SandboxConfigError
from nemo_gym.sandbox.providers.local import LocalProvider

MANY = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(600)
"""

_PYTHON = os.path.realpath(sys.executable)
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")


@pytest.fixture(params=["rlimits", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def isolation(request) -> str:
    return request.param


@pytest.fixture
def local(isolation):
    def make(spec: SandboxSpec | None = None, **settings) -> AsyncSandbox:
        return AsyncSandbox({"local": {"isolation": isolation, **settings}}, spec or SandboxSpec())

    return make


@pytest.fixture
def folder():
    """A folder that another user can pass through, unlike pytest's own."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


async def test_the_result_is_what_the_command_did(local):
    async with await local().start() as box:
        result = await box.exec("echo out; printf 'bad \\377 byte' >&2; exit 3")
        assert (result.stdout, result.stderr, result.return_code) == ("out\n", "bad � byte", 3)
        assert result.error_type is None
        assert (await box.exec("kill -9 $$")).return_code == 137
        assert (await box.exec(["printf", "%s|", "a b", "$HOME"])).stdout == "a b|$HOME|"


async def test_commands_see_the_environment_of_spec_and_call_and_nothing_of_ours(local, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "ours")
    async with await local(SandboxSpec(env={"A": "1", "B": "1"})).start() as box:
        result = await box.exec('echo "$A $B [$OUR_SECRET]"; env', env={"B": "2"})
    assert result.stdout.startswith("1 2 []\n")
    assert "ours" not in result.stdout


async def test_no_value_of_a_variable_shows_in_the_list_of_processes(local, processes, until):
    async with await local(SandboxSpec(env={"ONE_TOKEN": "secret-1"})).start() as box:
        task = asyncio.create_task(box.exec(processes.sleep(), env={"TWO_TOKEN": "secret-2"}))
        await until(processes.running)
        pids = {pid for found in processes.running() for pid in (found, _parent(found))}
        seen = [_arguments(pid) for pid in pids]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert seen
    assert not any(b"secret" in arguments for arguments in seen)


async def test_files_last_from_one_command_to_the_next_and_processes_do_not(local, processes, until):
    async with await local().start() as box:
        await box.exec(f"echo kept > file; echo kept > $TMPDIR/file; {processes.sleep()} >/dev/null 2>&1 &")
        assert (await box.exec("cat file $TMPDIR/file")).stdout == "kept\nkept\n"
        assert processes.running() == []


async def test_commands_run_in_the_working_folder_unless_they_say_otherwise(local):
    async with await local(SandboxSpec(workdir="/data/here")).start() as box:
        await box.exec("mkdir sub && echo x > sub/file")
        assert (await box.exec("cat file", cwd="sub")).stdout == "x\n"
        assert (await box.exec("cat file", cwd="/data/here/sub")).stdout == "x\n"
        assert (await box.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        failed = await box.exec("pwd", cwd="/no/such")
        assert failed.return_code != 0
        assert "No such file" in failed.stderr


async def test_a_timeout_kills_the_whole_tree(local, processes, until):
    escape = f"env -i setsid sh -c '{processes.sleep().replace(chr(39), chr(34))} & :' &"
    async with await local().start() as box:
        # On a busy machine, the first deadlines may come before the command has begun.
        for timeout_s in (1, 10, 100):
            command = f"echo begun; {escape} {processes.sleep()} & {processes.sleep()}"
            result = await box.exec(command, timeout_s=timeout_s)
            if "begun" in result.stderr:
                break
        assert (result.error_type, result.return_code, result.stdout) == ("timeout", 125, None)
        assert result.stderr.endswith("its stdout until then:\nbegun\n")
        assert processes.running() == []
        assert (await box.exec("echo still here")).stdout == "still here\n"


async def test_a_process_that_leaves_its_session_and_environment_ends_with_the_command(local, processes):
    async with await local().start() as box:
        wait = "while ! grep -qs x ready; do sleep 0.02; done"
        daemon = f"env -i PATH=$PATH setsid sh -c 'echo x > ready; while :; do sleep 600; done' {processes.token}"
        result = await box.exec(f"({daemon} >/dev/null 2>&1 &) ; {wait}; echo ok")
        assert result.stdout == "ok\n"
        assert processes.running() == []


async def test_cancelling_kills_the_whole_tree(local, processes, until):
    async with await local().start() as box:
        task = asyncio.create_task(box.exec(f"setsid {processes.sleep()} & {processes.sleep()}"))
        await until(lambda: len(processes.running()) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes.running() == []


async def test_one_process_cannot_even_reserve_more_memory_than_allowed(local):
    reserve = "python3 -c 'import mmap; print(len(mmap.mmap(-1, {} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))'"
    async with await local(SandboxSpec(resources=SandboxResources(memory_mib=256))).start() as box:
        refused = await box.exec(reserve.format(1024))
        granted = await box.exec(reserve.format(50))
    assert (refused.return_code, refused.stdout) == (1, "")
    assert "Cannot allocate memory" in refused.stderr
    assert granted.stdout == f"{50 << 20}\n"


async def test_many_processes_together_cannot_take_more_memory_than_allowed(local):
    hold = "python3 -c 'import time; x = bytearray(b\"1\") * (60 << 20); time.sleep(600)'"
    async with await local(SandboxSpec(resources=SandboxResources(memory_mib=128))).start() as box:
        result = await box.exec(f"for i in 1 2 3 4; do {hold} & done; wait", timeout_s=60)
    assert (result.error_type, result.return_code) == ("oom", 137)


async def test_there_is_a_bound_on_the_number_of_processes(local):
    async with await local(SandboxSpec(files={"many.py": MANY}), max_processes=20).start() as box:
        result = await box.exec("python3 many.py", timeout_s=60)
    assert result.error_type == "process_limit" or "BlockingIOError" in result.stderr


async def test_there_is_a_bound_on_the_size_of_a_file(local):
    async with await local(max_file_mib=1).start() as box:
        result = await box.exec("head -c 5000000 /dev/zero > big; stat -c %s big")
    assert int(result.stdout) <= 1 << 20


async def test_there_is_a_bound_on_all_files_together(local):
    async with await local(max_disk_mib=8).start() as box:
        result = await box.exec(
            "for n in $(seq 100); do head -c 1000000 /dev/zero > file$n; sleep 0.02; done; sleep 60"
        )
        assert (result.error_type, result.return_code) == ("disk_limit", 137)


async def test_output_is_bounded_and_a_flood_ends_the_command(local):
    async with await local(max_output_bytes=20_000).start() as box:
        long = await box.exec("seq 1 100000")
        flood = await box.exec("yes")
    assert len(long.stdout) < 20_100
    assert long.stdout.endswith("100000\n")
    assert flood.error_type == "output_limit"


async def test_files_and_folders_go_in_and_come_out(local, tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "in" / "sub" / "tool").chmod(0o755)
    async with await local(SandboxSpec(workdir="/data", files={"a": "text é", "/data/deep/b": b"\xff"})).start() as box:
        assert (await box.exec("cat a")).stdout == "text é"
        await box.upload(tmp_path / "in", "/data/folder")
        assert (await box.exec("folder/sub/tool")).stdout == "tool\n"
        await box.download("deep/b", tmp_path / "b")
        await box.download("/data/folder", tmp_path / "out")
        await box.upload(tmp_path / "b", "/tmp/x/b")
        assert (await box.exec("wc -c < $TMPDIR/x/b")).stdout.strip() == "1"
    assert (tmp_path / "b").read_bytes() == b"\xff"
    assert os.access(tmp_path / "out" / "sub" / "tool", os.X_OK)


async def test_a_download_that_fails_leaves_nothing(local, tmp_path):
    async with await local().start() as box:
        with pytest.raises(SandboxTransferError, match="No such file"):
            await box.download("missing", tmp_path / "out" / "x")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give rights up")
async def test_commands_of_root_run_as_nobody_and_a_link_leads_no_further_than_their_rights(local, tmp_path, folder):
    secret = folder / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    async with await local().start() as box:
        assert (await box.exec("id -u")).stdout != "0\n"
        await box.exec(f"ln -s {secret} link")
        with pytest.raises(SandboxTransferError):
            await box.download("link", tmp_path / "stolen")
        source = tmp_path / "source"
        source.write_text("overwritten")
        with pytest.raises(SandboxTransferError):
            await box.upload(source, "link")
    assert secret.read_text() == "secret"


async def test_sandboxes_at_the_same_time_have_folders_of_their_own(local):
    async def play(number: int) -> str:
        async with await local(SandboxSpec(env={"N": str(number)})).start() as box:
            await box.exec("echo $N > mine; echo $N > $TMPDIR/mine")
            return (await box.exec("ls; cat mine $TMPDIR/mine")).stdout

    assert await asyncio.gather(*map(play, range(4))) == [f"mine\n{n}\n{n}\n" for n in range(4)]


async def test_nothing_is_left_when_it_stops_even_what_was_made_unreadable(local):
    box = await local().start()
    root = Path(box.handle.raw.root)
    await box.exec("mkdir -p a/b && touch a/b/c && chmod 000 a/b a")
    handle = box.handle
    await box.stop()
    assert root.name not in os.listdir(root.parent)
    assert await box.provider.status(handle) is SandboxStatus.STOPPED
    assert (await box.provider.exec(handle, "true")).error_type == "sandbox"


async def test_a_sandbox_ends_with_its_time_to_live_and_the_next_one_clears_it_away(local, folder, processes):
    box = await local(SandboxSpec(ttl_s=1.5), base_dir=str(folder)).start()
    result = await box.exec(processes.sleep(), timeout_s=None)
    assert result.error_type == "timeout"
    assert processes.running() == []
    assert await box.status() is SandboxStatus.STOPPED
    result = await box.exec("true")
    assert (result.return_code, result.error_type) == (125, "timeout")
    assert "its time to live is over" in result.stderr
    assert len(list(folder.iterdir())) == 1
    async with await local(base_dir=str(folder)).start() as other:
        assert [path.name for path in folder.iterdir()] == [other.sandbox_id]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT], ids=lambda number: number.name)
async def test_a_signal_that_we_ignore_ends_a_command_all_the_same(local, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        async with await local().start() as box:
            # Not in bash itself, which always ignores SIGQUIT.
            result = await box.exec(f"sh -c 'kill -{number:d} $$; echo ignored'")
            assert (result.stdout, result.return_code) == ("", 128 + number)
    finally:
        signal.signal(number, before)


async def test_a_command_whose_sandbox_is_cleared_away_at_its_end_has_run_out_of_time(
    local, folder, processes, until, monkeypatch
):
    box = await local(SandboxSpec(ttl_s=3600), base_dir=str(folder)).start()
    running = asyncio.create_task(box.exec(processes.sleep(), timeout_s=None))
    await until(processes.running)
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    async with await local(base_dir=str(folder)).start():
        assert (await running).error_type == "timeout"


async def test_a_sandbox_whose_folder_is_gone_has_failed(local, folder):
    box = await local(base_dir=str(folder)).start()
    shutil.rmtree(folder / box.sandbox_id)
    result = await box.exec("true")
    assert (result.return_code, result.error_type) == (125, "sandbox")
    assert "its folder is gone" in result.stderr


async def test_the_time_to_live_begins_when_the_sandbox_is_ready(folder, monkeypatch):
    provider = LocalProvider(isolation="none", base_dir=str(folder))
    find_problem = provider._find_problem

    async def take_long(handle):
        later = time.time() + 3600
        monkeypatch.setattr(time, "time", lambda: later)
        return await find_problem(handle)

    monkeypatch.setattr(provider, "_find_problem", take_long)
    async with await AsyncSandbox(provider, SandboxSpec(ttl_s=60)).start() as box:
        assert (await box.exec("echo hello")).stdout == "hello\n"


async def test_another_process_can_take_the_sandbox_up(local):
    async with await local(SandboxSpec(env={"A_TOKEN": "secret"})).start() as box:
        state = json.loads(json.dumps(await box.serialize()))
        assert "secret" not in json.dumps(state)
        other = await AsyncSandbox.connect(state, provider={"local": {}})
        await box.exec("echo hello > file")
        assert (await other.exec("cat file; echo $A_TOKEN")).stdout == "hello\nsecret\n"
    with pytest.raises(SandboxNotRunningError, match="may have ended"):
        await AsyncSandbox.connect(state, provider={"local": {}})


@pytest.mark.parametrize("in_terminal", [False, True])
async def test_who_ends_a_command_waits_until_its_supervisor_has_killed_everything(
    local, processes, until, monkeypatch, in_terminal
):
    monkeypatch.setattr("nemo_gym.sandbox.providers.processes.GRACE_S", 0.0)
    escape = f"env -i setsid {processes.sleep()} &"
    async with await local().start() as box:
        command = f"{escape} {processes.sleep()}"
        if in_terminal:
            session = await box.pty.create(SandboxPtySpec(command))
            await until(lambda: len(processes.running()) == 2)
            await session.close()
        else:
            task = asyncio.create_task(box.exec(command))
            await until(lambda: len(processes.running()) == 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert processes.running() == []


async def test_a_supervisor_that_is_killed_leaves_a_result_and_no_process(local, processes, until):
    async with await local().start() as box:
        task = asyncio.create_task(box.exec(processes.sleep()))
        await until(processes.running)
        supervisors = _supervisors()
        for pid in supervisors:
            os.kill(pid, signal.SIGKILL)
        result = await task
        assert (len(supervisors), result.error_type, result.return_code) == (1, "killed", 137)
        await until(lambda: not processes.running())


@needs_bubblewrap
async def test_bubblewrap_shows_no_network_a_read_only_system_and_no_files_of_others(tmp_path):
    async with await AsyncSandbox({"local": {"isolation": "bubblewrap"}}, SandboxSpec()).start() as box:
        network = await box.exec("cat /proc/net/dev")
        assert [line.split(":")[0].strip() for line in network.stdout.splitlines()[2:]] == ["lo"]
        assert (await box.exec("touch /usr/x")).return_code != 0
        assert (await box.exec(f"ls {tmp_path}")).return_code != 0
        assert (await box.exec("ls /home /root")).return_code != 0
        assert (await box.exec("pwd; ls /tmp")).stdout == "/workspace\n"
        assert (await box.exec("ls -d /proc/[0-9]* | wc -l")).stdout.strip() in {"3", "4", "5"}


@needs_bubblewrap
async def test_a_socket_that_is_lent_is_the_only_way_out(folder):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hei")
        writer.close()

    path, python = folder / "lent.sock", _PYTHON
    async with await asyncio.start_unix_server(greet, path), await asyncio.start_server(greet, "127.0.0.1") as tcp:
        path.chmod(0o666)
        settings = {"local": {"isolation": "bubblewrap", "read_only_paths": [sys.base_prefix]}}
        port = tcp.sockets[0].getsockname()[1]
        ask = "import socket, sys; s = socket.socket({}); s.connect({}); print(s.recv(9).decode())"
        over_file, over_tcp = ask.format("socket.AF_UNIX", "'/tmp/out.sock'"), ask.format("", ("127.0.0.1", port))
        for options, reached in (
            ({"sockets": {"/tmp/out.sock": str(path)}}, (True, False)),
            ({"network": True}, (False, True)),
        ):
            spec = SandboxSpec(provider_options=options)
            async with await AsyncSandbox(settings, spec).start() as box:
                told = [await box.exec([python, "-c", code]) for code in (over_file, over_tcp)]
                assert tuple(each.stdout == "hei\n" for each in told) == reached


async def test_a_socket_is_not_lent_without_bubblewrap():
    spec = SandboxSpec(provider_options={"sockets": {"/tmp/a": "/tmp/b"}})
    with pytest.raises(SandboxCreateError, match="only under bubblewrap"):
        await AsyncSandbox({"local": {"isolation": "rlimits"}}, spec).start()


async def test_without_bubblewrap_the_log_says_so(caplog):
    caplog.set_level(logging.INFO, "nemo_gym.sandbox")
    async with await AsyncSandbox({"local": {"bubblewrap": "no-such-bwrap"}}, SandboxSpec()).start() as box:
        assert (await box.exec("echo hello")).stdout == "hello\n"
    assert "run without bubblewrap" in caplog.text
    assert "'no-such-bwrap' is not installed" in caplog.text


async def test_bubblewrap_that_does_not_work_is_not_used_unless_it_must_be(caplog, folder):
    broken = folder / "bwrap"
    broken.write_text("#!/bin/sh\necho no user namespaces >&2; exit 1\n")
    broken.chmod(0o755)
    async with await AsyncSandbox({"local": {"bubblewrap": str(broken)}}, SandboxSpec()).start() as box:
        assert (await box.exec("echo hello")).stdout == "hello\n"
    assert "no user namespaces" in caplog.text
    with pytest.raises(SandboxCreateError, match="no user namespaces\nhint: install"):
        await AsyncSandbox({"local": {"bubblewrap": str(broken), "isolation": "bubblewrap"}}, SandboxSpec()).start()


async def test_what_a_local_sandbox_cannot_give_is_refused():
    with pytest.raises(SandboxCreateError, match="no ports and no gpu\nhint: use the `docker` provider"):
        await AsyncSandbox({"local": {}}, SandboxSpec(ports=[1], resources=SandboxResources(gpu=1))).start()
    with pytest.raises(SandboxConfigError, match="isolation must be one of"):
        LocalProvider(isolation="vm")  # type: ignore[arg-type]
    async with await AsyncSandbox({"local": {"isolation": "rlimits"}}, SandboxSpec()).start() as box:
        with pytest.raises(SandboxConfigError, match="cannot run a command as user 'root'"):
            await box.exec("true", user="root")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _supervisors() -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _parent(pid) == os.getpid() and b"supervisor.py" in _arguments(pid)]
