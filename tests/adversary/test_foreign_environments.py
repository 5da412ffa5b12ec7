# SPDX-License-Identifier: Apache-2.0
"""Environments that somebody else wrote, and that fail: each in its own process, by name."""

import asyncio
import json

import pytest

from nemo_gym.adapters import TextStepServer
from nemo_gym.testing import running
from tests.adapters.environments import make_faulty
from tests.adapters.step_sessions import Caller, row


class FaultyServer(TextStepServer):
    """Environments that fail."""

    make_environment = staticmethod(make_faulty)


@pytest.mark.fault(
    place="Environment of another system",
    fault="It raises, hangs, spins, crashes, leaks memory, or returns no number",
    outcome="Its rollout is a failure that names which; the sessions beside it and after it go on.",
)
@pytest.mark.parametrize(
    ("said", "kind", "told", "retryable"),
    [
        ("raise", "tool_server", "RuntimeError: the board is upside down", False),
        ("hang", "timeout", "did not finish `step` within 3 s", False),
        ("spin", "timeout", "did not finish `step` within 3 s", False),
        ("crash", "worker_died", "ended during `step`", True),
        ("leak", "tool_server", "needed more than 64 MB", False),
        ("none", "tool_server", "must be a number, not None", False),
        ("nan", "tool_server", "must be a finite number, not nan", False),
        ("word", "tool_server", "must be a number, not 'ten'", False),
        ("digits", "tool_server", "must be a number, not '1.0'", False),
        ("short", "tool_server", "`step` must return observation, reward", False),
    ],
)
async def test_a_faulty_environment_fails_by_name_and_the_others_go_on(said, kind, told, retryable):
    limits = {"step_timeout_s": 3 if kind == "timeout" else 60, "session_memory_mb": 64}
    async with running(world=(FaultyServer, limits)) as client:
        bystander, faulty = Caller(client, row(goal=2)), Caller(client, row(goal=9))
        await bystander.reset()
        await faulty.reset()
        ended, fine = await asyncio.gather(faulty.step(said), bystander.step("1"))
        assert ended.status == 500
        failure = json.loads(ended.headers["x-nemo-gym-failure"])
        assert (failure["kind"], failure["retryable"], failure["ends_rollout"]) == (kind, retryable, True)
        assert told in failure["message"]
        assert "hint:" in failure["message"]
        assert (await fine.json())["observation"] == "You have 1."
        assert (await (await bystander.step("1")).json())["terminated"] is True
        assert (await faulty.step("1")).status == 400
        assert (await Caller(client, row(goal=3)).reset())["observation"] == "Reach 3."


@pytest.mark.fault(
    place="Environment of another system",
    fault="It cannot be made for a task",
    outcome="The rollout is a failure with the error and its traceback.",
)
async def test_an_environment_that_cannot_be_made_says_why():
    async with running(world=FaultyServer) as client:
        refused = await Caller(client, row(goal=-1)).post("/reset")
        assert refused.status == 500
        failure = json.loads(refused.headers["x-nemo-gym-failure"])
        assert "ValueError: a goal below zero in `reset`" in failure["message"]
