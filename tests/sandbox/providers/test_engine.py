# SPDX-License-Identifier: Apache-2.0
"""What all container engines have in common, through the stand-ins for their client programs."""

import asyncio

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxSpec

pytestmark = pytest.mark.thorough


@pytest.fixture(params=["docker", "apptainer"])
def engine(request) -> str:
    request.getfixturevalue(request.param)
    return request.param


async def start(engine: str, image: str | None = "python:3.12") -> AsyncSandbox:
    return await AsyncSandbox({engine: {}}, SandboxSpec(image=image)).start()


async def test_a_timeout_kills_what_runs_inside(engine, processes, until):
    async with await start(engine) as box:
        command = f"echo begun; {processes.sleep()} & setsid {processes.sleep()}"
        # On a busy machine, the first deadlines may come before the command has begun.
        for timeout_s in (1, 10, 100):
            result = await box.exec(command, timeout_s=timeout_s)
            if "begun" in result.stderr:
                break
        assert (result.error_type, result.return_code, result.stdout) == ("timeout", 125, None)
        assert result.stderr.endswith("its stdout until then:\nbegun\n")
        await until(lambda: not processes.running())
        assert (await box.exec("echo still here")).stdout == "still here\n"


@pytest.mark.thorough
async def test_cancelling_kills_what_runs_inside(engine, processes, until):
    async with await start(engine) as box:
        task = asyncio.create_task(box.exec(processes.sleep()))
        await until(processes.running)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not processes.running())


async def test_a_sandbox_needs_an_image(engine):
    with pytest.raises(SandboxCreateError, match=f"provider {engine!r} needs an image\nhint: "):
        await start(engine, image=None)
