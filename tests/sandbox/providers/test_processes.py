# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.sandbox.providers import processes as module
from nemo_gym.sandbox.providers.base import SandboxError
from nemo_gym.sandbox.providers.processes import Capture, run_program


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.3)


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


async def test_output_and_return_code_are_those_of_the_process():
    completed = await run_program(sh("echo out; echo err >&2; exit 3"))
    assert (completed.stdout, completed.stderr, completed.return_code) == (b"out\n", b"err\n", 3)
    assert completed.ended_by is None


async def test_a_signal_gives_the_return_code_that_a_shell_would_give():
    assert (await run_program(sh("kill -9 $$"))).return_code == 137


async def test_at_the_deadline_the_whole_group_is_killed_and_its_output_kept(processes, until):
    script = f"echo before; {processes.sleep()} & {processes.sleep()}"
    # On a busy machine, the first deadlines may come before the program has begun.
    for timeout_s in (0.5, 5, 50):
        completed = await run_program(sh(script), timeout_s=timeout_s)
        if completed.stdout:
            break
    assert completed.ended_by == "timeout"
    assert completed.stdout == b"before\n"
    await until(lambda: not processes.running())


async def test_a_process_that_ignores_the_gentle_signal_is_killed(processes, until):
    completed = await run_program(sh(f"trap '' TERM; {processes.sleep()}"), timeout_s=0.3)
    assert completed.ended_by == "timeout"
    await until(lambda: not processes.running())


async def test_cancelling_ends_the_process(processes, until):
    task = asyncio.create_task(run_program(sh(processes.sleep())))
    await until(processes.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not processes.running())


@pytest.mark.parametrize("steps", range(6))
async def test_cancelling_while_the_process_comes_up_ends_it(processes, until, steps):
    task = asyncio.create_task(run_program(sh(processes.sleep())))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not processes.running())


async def test_the_interrupt_comes_before_the_kill():
    asked = []

    async def interrupt() -> None:
        asked.append(True)

    completed = await run_program(sh("sleep 600"), timeout_s=0.1, interrupt=interrupt)
    assert (asked, completed.ended_by) == ([True], "timeout")


async def test_long_output_keeps_its_beginning_and_its_end():
    completed = await run_program(sh("seq 1 100000"), max_output_bytes=20_000)
    assert completed.stdout.startswith(b"1\n2\n3\n")
    assert completed.stdout.endswith(b"99999\n100000\n")
    assert b"bytes left out" in completed.stdout
    assert len(completed.stdout) < 20_100


async def test_a_flood_of_output_ends_the_process():
    completed = await run_program(["yes"], max_output_bytes=1000)
    assert completed.ended_by == "output_limit"


async def test_something_left_behind_that_holds_the_output_is_not_waited_for(processes):
    completed = await run_program(sh(f"{processes.sleep()} & echo done"))
    assert completed.stdout == b"done\n"
    for pid in processes.running():
        await run_program(["kill", "-9", str(pid)])


async def test_a_command_beyond_what_the_system_takes_says_what_to_do():
    with pytest.raises(SandboxError, match=r"too long.*\nhint: upload it"):
        await run_program(sh("#" * 3_000_000))


async def test_a_missing_program_is_a_file_not_found():
    with pytest.raises(FileNotFoundError):
        await run_program(["/no/such/program"])


@given(chunks=st.lists(st.binary(max_size=40), max_size=20), limit=st.integers(2, 60))
@settings(max_examples=50, deadline=None)
def test_a_capture_accounts_for_every_byte(chunks, limit):
    capture = Capture(limit, asyncio.Event())
    for chunk in chunks:
        capture.add(chunk)
    whole, kept = b"".join(chunks), capture.get_content()
    half = limit // 2
    if len(whole) <= 2 * half:
        assert kept == whole
    else:
        left_out = f"\n[... {len(whole) - 2 * half} bytes left out ...]\n".encode()
        assert kept == whole[:half] + left_out + whole[-half:]
