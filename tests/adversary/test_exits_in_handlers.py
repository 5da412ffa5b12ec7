# SPDX-License-Identifier: Apache-2.0
"""Servers whose code ends the process, interrupts it or cancels itself: a rollout fails, and the run goes on."""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware

from nemo_gym._rollouts.outcomes import Failed, Outcome
from nemo_gym._servers.processes.server_host import InlineServer, InlineSpec, build_in_thread, serve_inline
from nemo_gym._servers.processes.server_process import ServerDied
from nemo_gym._transport.failures import convert_exit
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.testing import ScriptedModel, build_server, reply, tool_call
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.cli.conftest import gym, ports_are_given_back  # noqa: F401  fixtures
from tests.support.one_rollout import play_rollout
from tests.support.small_servers import free_port


def interrupt() -> None:
    raise KeyboardInterrupt


def cancel() -> None:
    raise asyncio.CancelledError


def close() -> None:
    raise GeneratorExit


def cancel_own_task() -> None:
    asyncio.current_task().cancel()


EXITS = {
    "SystemExit(0)": lambda: sys.exit(0),
    "KeyboardInterrupt()": interrupt,
    "CancelledError()": cancel,
    "GeneratorExit()": close,
}


class Trap:
    """Where in a rollout code is to leave, and how."""

    place, leave = "", staticmethod(lambda: None)

    @classmethod
    def at(cls, place: str) -> None:
        if cls.place == place:
            cls.leave()


class World(SimpleResourcesServer):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look")(self.look)
        app.post("/touch")(self.touch)
        return app

    async def seed_session(self, body: dict[str, Any]) -> dict[str, Any]:
        Trap.at("seed_session")
        return {}

    async def look(self, body: dict[str, Any]) -> dict[str, Any]:
        Trap.at("tool")
        return {}

    def touch(self, body: dict[str, Any]) -> dict[str, Any]:
        Trap.at("tool in a thread")
        return {}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        Trap.at("verify")
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class WorldBehindMiddleware(World):
    """Calls go through the whole stack, and handlers run in a task that a middleware has made."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.add_middleware(BaseHTTPMiddleware, dispatch=lambda request, call_next: call_next(request))
        return app


class Model(ScriptedModel):
    async def responses(self, body: Any) -> Any:
        Trap.at("model")
        return await super().responses(body)


class Agent(SimpleAgent):
    async def responses(self, request: Any, response: Any, body: Any) -> Any:
        Trap.at("agent")
        return await super().responses(request, response, body)


async def play(world: type[World], timeout_s: float | None = None) -> Outcome:
    """Play one rollout, which takes calls of both tools."""
    model = build_server(Model, name="policy_model")
    model._replies.extend([reply(tool_call("look"), tool_call("touch")), reply("seen")] * 3)
    return await play_rollout(world, model, agent=Agent, timeout_s=timeout_s)


@pytest.fixture
def set_trap(monkeypatch) -> Callable[..., None]:
    def set_trap(place: str, leave: Callable[[], None]) -> None:
        monkeypatch.setattr(Trap, "place", place)
        monkeypatch.setattr(Trap, "leave", staticmethod(leave))

    return set_trap


@pytest.mark.fault(
    place="Inline server",
    fault="A handler raises SystemExit, KeyboardInterrupt, CancelledError or GeneratorExit",
    outcome="The rollout is a failure that names the exception and its line; the others go on.",
)
@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("place", ["seed_session", "agent", "model", "tool", "tool in a thread", "verify"])
@pytest.mark.parametrize("world", [World, WorldBehindMiddleware])
async def test_a_handler_that_leaves_fails_its_rollout_only(set_trap, world, place, how):
    set_trap(place, EXITS[how])
    outcome = await play(world)
    assert isinstance(outcome, Failed)
    assert how in outcome.failure.message
    assert "test_exits_in_handlers.py" in outcome.failure.message
    kinds = {"verify": "verifier", "tool": "tool_crashed", "model": "model_endpoint"}
    assert outcome.failure.kind == kinds.get(place, outcome.failure.kind)


@pytest.mark.fault(
    place="Inline server",
    fault="A handler cancels the task in which it runs",
    outcome="The rollout is a failure that says so; the others go on.",
)
@pytest.mark.parametrize("place", ["seed_session", "agent", "model", "tool", "verify"])
@pytest.mark.parametrize("timeout_s", [None, 60])
async def test_a_handler_that_cancels_its_own_task_fails_its_rollout_only(set_trap, place, timeout_s):
    set_trap(place, cancel_own_task)
    outcome = await play(World, timeout_s)
    assert isinstance(outcome, Failed)
    assert "CancelledError(): it cancelled its own task" in outcome.failure.message
    assert not outcome.failure.retryable
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0)


async def test_a_handler_behind_middleware_that_cancels_its_own_task_fails_its_rollout_only(set_trap):
    set_trap("verify", cancel_own_task)
    assert (await play(WorldBehindMiddleware)).failure.kind == "verifier"


async def test_a_coroutine_that_is_closed_is_just_closed():
    async def wait_with_conversion() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as raised:
            raise convert_exit(raised) from raised

    work = wait_with_conversion()
    work.send(None)
    work.close()  # raises if the coroutine turned it into another error


async def test_a_rollout_whose_code_leaves_nowhere_is_scored(set_trap):
    set_trap("nowhere", cancel)
    assert not isinstance(await play(World), Failed)


async def test_a_rollout_that_we_cancel_is_cancelled(set_trap):
    begun = asyncio.Event()
    set_trap("agent", begun.set)
    task = asyncio.create_task(play(World))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.fault(
    place="Inline server",
    fault="Its code leaves by SystemExit, KeyboardInterrupt or CancelledError while it is loaded or starts",
    outcome="The command says which server could not start; exit code 1.",
)
@pytest.mark.parametrize("how", EXITS)
async def test_a_server_that_leaves_before_it_is_ready_is_named(how):
    @asynccontextmanager
    async def lifespan(_):
        EXITS[how]()
        yield

    with pytest.raises(ServerDied, match="tiny"):
        await build_in_thread(InlineSpec("tiny", "127.0.0.1", 1, EXITS[how]))
    server = InlineServer("tiny", "127.0.0.1", free_port(), FastAPI(lifespan=lifespan))
    with pytest.raises(ServerDied, match="tiny"):
        async with serve_inline([server]):
            pass


# --- whole runs -------------------------------------------------------------------------------------------------------

LEAVING_APP = """
import asyncio, sys

from pydantic import ConfigDict
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


class Request(BaseVerifyRequest):
    how: str


class Leaving(SimpleResourcesServer):
    async def verify(self, body: Request) -> BaseVerifyResponse:
        if body.how == "exit":
            sys.exit(0)
        if body.how == "stop":
            asyncio.get_running_loop().stop()
        if body.how == "cancel":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        if body.how == "exit in a task":
            await asyncio.gather(self.leave())
        if body.how == "exit in the background":
            self._task = asyncio.create_task(self.leave())
            await asyncio.sleep(0.05)
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

    async def leave(self):
        sys.exit(0)


if __name__ == "__main__":
    Leaving.run_webserver()
"""


def write_environment(root: Path, hows: list[str]) -> Path:
    """Write the environment `leaving`, whose verifier leaves in the ways of `hows`, a task each; return the tasks."""
    folder = root / "resources_servers" / "leaving"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(LEAVING_APP)
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "leaving"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    blocks = {
        "leaving": {"resources_servers": {"leaving": {"entrypoint": "app.py", "domain": "other"}}},
        "leaving_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    (folder / "configs" / "leaving.yaml").write_text(yaml.safe_dump(blocks))
    tasks = root / "tasks.jsonl"
    rows = [{"how": how, "number": n, "responses_create_params": {"input": "hi"}} for n, how in enumerate(hows)]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tasks


def run(gym: Callable[..., Any], tasks: Path, *more: str) -> Any:  # noqa: F811
    return gym(
        *("eval", "run", "--resources-server", "leaving", "--model-type", "replay_model", "--concurrency", "1"),
        "++policy_model.responses_api_models.replay_model.replies=[done]",
        "++policy_model.responses_api_models.replay_model.on_miss=cycle",
        *(f"++head_server.port={free_port()}", "-a", "leaving_agent", "-i", str(tasks), "-o", "r.jsonl", *more),
    )


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


@pytest.mark.fault(
    place="Inline server",
    fault="A handler calls `sys.exit(0)`, itself or in a task that it waits for",
    outcome="A failure row names it, everything else is played, and the exit code is 1.",
)
@pytest.mark.parametrize("placement", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_a_run_with_a_verifier_that_exits_accounts_for_every_rollout(gym, tmp_path, placement):  # noqa: F811
    tasks = write_environment(tmp_path, ["exit", "", *(["exit in a task"] if placement == "inline" else []), ""])
    said = run(gym, tasks, f"++leaving.resources_servers.leaving.placement={placement}")
    failures, scored = rows_of("r_failures.jsonl"), rows_of("r.jsonl")
    assert said.code == 1, said
    assert [row["_ng_task_index"] for row in scored] == [1, len(scored) + len(failures) - 1]
    assert len(scored) + len(failures) == len(tasks.read_text().splitlines())
    assert {row["_ng_failure"]["kind"] for row in failures} == {"verifier"}
    assert all("SystemExit(0)" in row["_ng_failure"]["message"] for row in failures)
    assert f"2 scored of {2 + len(failures)} requested" in said.out


@pytest.mark.fault(
    place="Inline server",
    fault="A handler stops the event loop",
    outcome="A failure row names it, everything else is played, and the exit code is 1.",
)
@pytest.mark.parametrize(("how", "said_in_row"), [("stop", "loop.stop()"), ("cancel", "cancelled its own task")])
def test_a_run_with_a_verifier_that_stops_the_loop_accounts_for_every_rollout(gym, tmp_path, how, said_in_row):  # noqa: F811
    said = run(gym, write_environment(tmp_path, ["", how, ""]))
    assert said.code == 1, said
    assert [row["_ng_task_index"] for row in rows_of("r.jsonl")] == [0, 2]
    (failed,) = rows_of("r_failures.jsonl")
    assert said_in_row in failed["_ng_failure"]["message"]


@pytest.mark.fault(
    place="Inline server",
    fault="A task in the background, for which no call waits, calls `sys.exit(0)`",
    outcome="The log names the line; every rollout is played.",
)
def test_an_exit_in_the_background_does_not_end_the_run(gym, tmp_path, caplog):  # noqa: F811
    said = run(gym, write_environment(tmp_path, ["exit in the background", "", ""]))
    assert said.code == 0, said
    assert len(rows_of("r.jsonl")) == 3
    assert "SystemExit: 0 (in leave" in caplog.text


@pytest.mark.fault(
    place="Rollout driver",
    fault="The user's `rollout_collection_driver` calls `sys.exit(0)` before the rollouts are accounted for",
    outcome="The command says so; exit code 1.",
)
def test_an_exit_of_the_driver_is_no_success(gym, tmp_path, monkeypatch):  # noqa: F811
    tasks = write_environment(tmp_path, [""])
    (tmp_path / "leaving_driver.py").write_text("import sys\ndef collect(config, *_): sys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = run(gym, tasks, "++rollout_collection_driver=leaving_driver:collect")
    assert said.code == 1
    assert "SystemExit: 0 (in collect" in said.err
    assert "hint: " in said.err
