# SPDX-License-Identifier: Apache-2.0
"""Rollouts that hang do not keep others from their interpreters."""

import asyncio

import pytest

from nemo_gym._rollouts.play import RetryRule, RetryRules
from nemo_gym._transport.failures import HEADER, decode_failure
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.errors import RolloutFailure
from nemo_gym.testing import reply, running, scripted_model, tool_call
from resources_servers.math_with_code.app import MathWithCodeResourcesServer
from tests.support.one_rollout import play_rollout
from tests.support.sandbox_processes import SLEEP, kill_the_sandbox

EVICTING = {"max_sessions": 2, "evict_idle_secs": 0.2, "max_execution_time": 60}


class Rollout:
    """A session with the server, as an agent has it."""

    def __init__(self, client):
        self._client, self._cookies = client, {}

    async def post(self, code):
        if not self._cookies:
            seeded = await self._client.post("math_with_code", "/seed_session", json={})
            self._cookies = {name: morsel.value for name, morsel in seeded.cookies.items()}
        return await self._client.post("math_with_code", "/execute_python", json={"code": code}, cookies=self._cookies)

    async def run(self, code):
        answer = await self.post(code)
        assert answer.status == 200, await answer.text()
        return (await answer.json())["result"]


@pytest.mark.fault(
    place="`math_with_code`",
    fault="Rollouts that hang hold all interpreters.",
    outcome="The one that was idle longest is ended for a rollout that waits, and the log says so.",
)
async def test_the_longest_idle_interpreter_makes_room_and_its_rollout_is_told(caplog):
    async with running(math_with_code=(MathWithCodeResourcesServer, EVICTING)) as client:
        first, second, third = (Rollout(client) for _ in range(3))
        await first.run("x = 1")
        await second.run("x = 2")
        assert await third.run("3") == "3"
        assert await second.run("x") == "2"
        assert "ended the interpreter of a rollout" in caplog.text

        refused = await first.post("x")
        failure = decode_failure(refused.headers[HEADER])
        assert (refused.status, failure.kind) == (500, "tool_server")
        assert "no call for" in failure.message
        assert "all 2 interpreters were taken" in failure.message
        assert "hint: raise `max_sessions`" in failure.message
        assert await first.run("'x' in globals()") == "False"


@pytest.mark.fault(
    place="`math_with_code`",
    fault="All interpreters are taken, and the longest without a new call still executes one.",
    outcome="It is never ended: one that is idle is, or the rollout waits.",
)
async def test_an_interpreter_that_executes_is_never_ended_for_another():
    async with running(math_with_code=(MathWithCodeResourcesServer, EVICTING)) as client:
        busy, idle, waiting = (Rollout(client) for _ in range(3))
        executing = asyncio.ensure_future(busy.run("import time; time.sleep(60)"))
        await idle.run("x = 2")
        assert await waiting.run("3") == "3"
        assert not executing.done()
        executing.cancel()


@pytest.mark.fault(
    place="`math_with_code`",
    fault="Many rollouts wait at the same time, all interpreters being held by rollouts that hang.",
    outcome="All of them get one, and none is ended that nobody waits for.",
)
async def test_as_many_interpreters_are_ended_as_rollouts_wait(caplog):
    async with running(math_with_code=(MathWithCodeResourcesServer, {**EVICTING, "max_sessions": 4})) as client:
        hanging = [Rollout(client) for _ in range(4)]
        await asyncio.gather(*(one.run("x = 1") for one in hanging))
        said = await asyncio.gather(*(Rollout(client).run(str(number)) for number in range(3)))
        assert said == ["0", "1", "2"]
        assert caplog.text.count("ended the interpreter of a rollout") == 3


@pytest.mark.fault(
    place="`math_with_code`",
    fault="More rollouts than interpreters, none of which is idle for long.",
    outcome="They wait for their turn, and nobody loses variables.",
)
async def test_interpreters_in_use_are_waited_for():
    config = {**EVICTING, "max_sessions": 1, "evict_idle_secs": 600}
    async with running(math_with_code=(MathWithCodeResourcesServer, config)) as client:
        first, second = Rollout(client), Rollout(client)
        await first.run("x = 1")
        waiting = asyncio.ensure_future(second.run("2"))
        assert await first.run("x") == "1"
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.fault(
    place="`math_with_code`",
    fault="The sandbox around the interpreter of a rollout is killed from outside.",
    outcome="The rollout is a failure that may be played again; the model is not told of it.",
)
async def test_a_rollout_that_loses_its_sandbox_fails_and_may_be_played_again():
    async with running(math_with_code=(MathWithCodeResourcesServer, EVICTING)) as client:
        rollout = Rollout(client)
        executing = asyncio.ensure_future(rollout.post(f"{SLEEP}(60)"))
        await kill_the_sandbox()
        lost = await executing
        failure = decode_failure(lost.headers[HEADER])
        assert (lost.status, failure.ends_rollout, failure.retryable) == (500, True, True)
        assert "could not be run to its end" in failure.message
        assert await rollout.run("1 + 1") == "2"


class Losing(SimpleResourcesServer):
    """An environment whose tool loses what the rollout has done so far."""

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/lose")(self.lose)
        return app

    async def lose(self):
        raise RolloutFailure("interpreter_evicted", "all is lost", retryable=True)

    async def verify(self, body):
        raise AssertionError("there is nothing to score")


@pytest.mark.fault(
    place="Agent",
    fault="A tool says that the rollout can't be scored any more, such as one whose interpreter was ended.",
    outcome="The rollout is played again, and then a failure of the kind `tool_server`; it is not scored.",
)
async def test_a_tool_that_has_lost_the_rollout_ends_it():
    rules = RetryRules(other=RetryRule(2, 0.0))
    model = scripted_model(reply(tool_call("lose")), reply(tool_call("lose")))
    outcome = await play_rollout(Losing, model, retries=rules)
    assert (outcome.failure.kind, outcome.failure.retryable, outcome.attempts) == ("tool_server", True, 2)
    assert "all is lost" in outcome.failure.message
