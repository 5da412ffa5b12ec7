# SPDX-License-Identifier: Apache-2.0
"""An environment that forks must not answer for another episode, and leaves no process behind."""

import asyncio

import psutil
import pytest

from nemo_gym._isolation.episode_processes import EpisodeProcesses
from nemo_gym.errors import RolloutFailure
from tests.adversary.forking_environments import make_forking

HOW = ["returns twice", "answers at once", "answers all questions", "speaks ahead"]


async def play(processes: EpisodeProcesses, how: str, steps: int) -> list[float]:
    """Return the rewards of an episode; a failure ends it."""
    episode = await processes.open()
    rewards = list[float]()
    try:
        await episode.reset({"how": how}, 0, 10)
        for _ in range(steps):
            rewards.append((await episode.step(["go"], 10))["reward"])
            await asyncio.sleep(0.1)  # so that its child may speak
    except RolloutFailure:
        pass
    finally:
        await episode.end()
    return rewards


@pytest.mark.fault(
    place="Environment of another system",
    fault="It forks, and its child answers too, at once or for all later questions, or it answers before it is asked",
    outcome="Every answer has the number of its question and one speaker; else the process ends, and others play on.",
)
@pytest.mark.parametrize("how", HOW)
async def test_a_forked_environment_decides_no_reward_but_its_own(how):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    async with EpisodeProcesses(make_forking, size=1, memory_bytes=2**30) as processes:
        assert 1.0 not in await play(processes, how, steps=3)
        assert await play(processes, "does not fork", steps=3) == [0.0, 0.0, 0.0]
        started = [one for one in psutil.Process().children(recursive=True) if one.pid not in before]
        assert len(started) <= 2, "a forked child is left"
    _, alive = await asyncio.to_thread(psutil.wait_procs, started, 5)
    assert alive == []
