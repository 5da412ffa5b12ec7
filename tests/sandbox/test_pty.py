# SPDX-License-Identifier: Apache-2.0
"""Terminals in sandboxes: for real with the local provider, and through the stand-ins of the container engines."""

import asyncio
import contextlib
import shutil

import pytest
import uvloop

from nemo_gym.sandbox import AsyncSandbox, SandboxPtyError, SandboxPtySession, SandboxPtySpec, SandboxSpec

pytestmark = pytest.mark.thorough

LOCAL = {"local": {"isolation": "bubblewrap" if shutil.which("bwrap") else "rlimits"}}
SPEC = SandboxSpec(image="python:3.12")


@pytest.fixture(params=["local", "docker", "apptainer"])
def provider(request) -> dict:
    if request.param == "local":
        return LOCAL
    request.getfixturevalue(request.param)
    return {request.param: {}}


async def read_until(session: SandboxPtySession, expected: str) -> str:
    shown = ""
    while expected not in shown:
        data = await session.read(60)
        assert data, f"ended before {expected!r} came: {shown!r}"
        shown += data.decode()
    return shown


async def test_a_command_runs_in_a_terminal_of_the_size_that_was_asked_for(provider):
    async with await AsyncSandbox(provider, SPEC).start() as box:
        result = await box.pty.exec("test -t 0 && stty size; echo $TERM $A; exit 3", env={"A": 1}, rows=30, cols=100)
    assert (result.stdout, result.return_code, result.error_type) == ("30 100\r\nxterm 1\r\n", 3, None)


async def test_one_talks_to_a_shell_and_finds_it_again(provider, processes, until):
    async with await AsyncSandbox(provider, SPEC).start() as box:
        session = await box.pty.create()
        await session.write("echo $((6 * 7))\n")
        await read_until(session, "42")
        assert await box.pty.attach(session.pty_id) is session
        await session.resize(50, 132)
        await session.write(b"stty size\n")
        await read_until(session, "50 132")
        await session.write(f"{processes.sleep()} &\n")
        await until(processes.running)
        await session.close()
        await session.close()
        await until(lambda: not processes.running())
        assert await session.read() == b""
        with pytest.raises(SandboxPtyError, match="has ended"):
            await session.write("more")
        with pytest.raises(SandboxPtyError, match=r"no open terminal(.|\n)*hint"):
            await box.pty.attach(session.pty_id)


async def test_ctrl_c_reaches_the_program(processes, until):
    async with await AsyncSandbox(LOCAL, SPEC).start() as box:
        session = await box.pty.create(SandboxPtySpec(f"{processes.sleep()}"))
        await until(processes.running)
        ended = asyncio.create_task(session.wait(300))
        while not ended.done():
            # As a person does: a program that is just being started may not hear the first one.
            with contextlib.suppress(SandboxPtyError):
                await session.write("\x03")
            await asyncio.wait([ended], timeout=0.5)
        assert ended.result() == 130
        assert processes.running() == []


async def test_without_a_terminal_input_and_output_are_plain_streams(provider):
    async with await AsyncSandbox(provider, SPEC).start() as box:
        session = await box.pty.create(SandboxPtySpec(["sh", "-c", "test -t 0 || read x; echo got $x"], pty=False))
        await session.write("this\n")
        assert await read_until(session, "\n") == "got this\n"
        assert await session.wait() == 0
        await session.resize(1, 1)
        await session.close()


async def test_a_terminal_that_takes_too_long_is_closed(processes, until):
    async with await AsyncSandbox(LOCAL, SPEC).start() as box:
        result = await box.pty.exec(f"echo begun; {processes.sleep()}", timeout_s=2)
        assert (result.return_code, result.error_type, result.stdout) == (125, "timeout", None)
        await until(lambda: not processes.running())


@pytest.mark.thorough
async def test_a_sandbox_that_stops_closes_its_terminals(provider, processes, until):
    box = await AsyncSandbox(provider, SPEC).start()
    session = await box.pty.create(SandboxPtySpec(processes.sleep(), cwd="/"))
    await until(processes.running)
    await box.stop()
    await until(lambda: not processes.running())
    assert await session.read() == b""


async def test_much_typing_waits_for_a_program_that_reads_slowly(tmp_path):
    async with await AsyncSandbox(LOCAL, SPEC).start() as box:
        session = await box.pty.create(SandboxPtySpec("sleep 0.2; head -c 3000000 | wc -c", pty=False))
        await session.write("x" * 3_000_000)
        assert (await read_until(session, "\n")).strip() == "3000000"
        await session.close()


def test_it_works_on_the_event_loop_that_servers_run_on(docker):
    async def play() -> str | None:
        async with await AsyncSandbox({"docker": {}}, SPEC).start() as box:
            results = await asyncio.gather(*(box.pty.exec(f"tty >/dev/null && echo {n}") for n in range(2)))
            return "".join(result.stdout or "" for result in results)

    assert uvloop.run(play()) == "0\r\n1\r\n"
