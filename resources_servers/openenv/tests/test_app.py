# SPDX-License-Identifier: Apache-2.0
"""Environments of OpenEnv servers: played as OpenEnv's own client plays them, and what goes wrong has a name."""

import asyncio
import json
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from nemo_gym.testing import build_server, reply, running, tool_call
from resources_servers.openenv import catalog, generate_data
from resources_servers.openenv.actions import read_mcp_tools, read_schema, show_observation
from resources_servers.openenv.app import OpenEnvResourcesServer, find_url
from tests.support.server_venvs import server_python

HERE = Path(__file__).parent
PACKAGE = "openenv-core==0.3.0"
TEXT = {"title": "Guess", "properties": {"metadata": {"type": "object"}, "message": {"type": "string"}}}
pytestmark = pytest.mark.timeout(600)


class Session:
    """One session with the server `world`."""

    def __init__(self, client: Any, environment: str, **task: Any) -> None:
        self._client, self._cookies = client, {}
        self._task = {"responses_create_params": {"input": "Play."}, "environment": environment, **task}

    async def post(self, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the body; of a failure, what its header says."""
        answer = await self._client.post("world", path, json={**self._task, **fields}, cookies=self._cookies)
        self._cookies = {**self._cookies, **answer.cookies}
        if failure := answer.headers.get("x-nemo-gym-failure"):
            return answer.status, json.loads(failure)
        return answer.status, await answer.json()

    async def reset(self) -> dict[str, Any]:
        status, begun = await self.post("/reset")
        assert status == 200, begun
        return begun

    async def step(self, *said: Any) -> tuple[int, dict[str, Any]]:
        return await self.post("/step", response=reply(*said).model_dump())


def told(step: dict[str, Any]) -> Any:
    """Return what the model is told after a step."""
    outputs = [one["output"] for one in step["info"].get("tool_outputs", [])]
    return outputs[0] if outputs else step["observation"]


# --- a server of the real package -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python() -> Path:
    return server_python("openenv", PACKAGE)


@pytest.fixture
def real(python: Path, unused_tcp_port: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """An OpenEnv server: its URL and its process."""
    command = [python, HERE / "openenv_server.py", str(unused_tcp_port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline() == "listening\n"
        yield f"http://127.0.0.1:{unused_tcp_port}", process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def make_episodes(url: str, count: int) -> list[dict[str, Any]]:
    """Return episodes of three environments by turns: how they begin, and the actions of a player."""
    episodes = []
    for seed in range(count):
        draw = random.Random(seed)
        name, make = [
            ("guessing", lambda draw=draw: {"message": draw.choice(["ten", "99", *map(str, range(1, 9))])}),
            ("counting", lambda draw=draw: {"amount": draw.randint(1, 6), "doubled": draw.random() < 0.5}),
            ("tools", lambda draw=draw: make_call(draw.choice(["listen", "listen", "open_door"]), draw.randint(1, 3))),
        ][seed % 3]
        reset = {"seed": seed, **({"highest": 9} if name == "guessing" else {})}
        actions = [*(make() for _ in range(7)), *([make_call("open_door", 1)] if name == "tools" else [])]
        episodes.append({"url": f"{url}/{name}", "reset": reset, "actions": actions})
    return episodes


def make_call(name: str, door: int) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": {"door": door}}


def play_alone(python: Path, episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what OpenEnv's own client sees."""
    lines = "".join(json.dumps(episode) + "\n" for episode in episodes)
    command = [python, HERE / "play_alone.py"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [[[show_observation(what), reward or 0.0, end] for what, reward, end in one["steps"]] for one in seen]
    return [{"begun": show_observation(one["begun"]), "steps": each} for one, each in zip(seen, steps, strict=True)]


async def play_here(client: Any, episode: dict[str, Any]) -> dict[str, Any]:
    """Return what this server gives; half of the texts are said, all other actions are calls."""
    reset = dict(episode["reset"])
    session = Session(client, episode["url"], seed=reset.pop("seed"), arguments=reset)
    begun, steps = await session.reset(), []
    for number, action in enumerate(episode["actions"]):
        if "message" in action and number % 2:
            said: Any = f"<think>Hm.</think>{action['message']}"
        elif "tool_name" in action:
            said = tool_call(action["tool_name"], action["arguments"])
        else:
            said = tool_call("step", action)
        status, step = await session.step(said)
        assert status == 200, step
        steps.append([told(step), step["reward"], step["terminated"]])
        if step["terminated"]:
            break
    await session.post("/close")
    return {"begun": begun["observation"], "steps": steps}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
async def test_every_step_is_what_the_client_of_openenv_sees_however_many_play(real, python):
    """There are more players than the guessing game has places: they take turns."""
    episodes = make_episodes(real[0], 60)
    expected = play_alone(python, episodes)
    assert len({step[1] for one in expected for step in one["steps"]}) > 30, "the rewards differ"
    async with running(world=(OpenEnvResourcesServer, {"max_sessions": 16})) as client:
        assert [await play_here(client, episode) for episode in episodes] == expected
        assert await asyncio.gather(*(play_here(client, episode) for episode in episodes)) == expected


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
async def test_a_real_environment_that_fails_hangs_or_goes_away_is_a_named_failure(real):
    url, process = real
    async with running(world=(OpenEnvResourcesServer, {"step_timeout_s": 1, "full_timeout_s": 0.1})) as client:
        raises, hangs, wrong, bystander = (Session(client, f"{url}/guessing", seed=1) for _ in range(4))
        for session in (raises, hangs, wrong, bystander):
            await session.reset()
        status, failure = await Session(client, f"{url}/guessing", seed=1).post("/reset")
        assert (status, failure["kind"], failure["retryable"]) == (500, "tool_server", True)
        assert "was full for 0.1 s" in failure["message"]
        status, failure = await raises.step("raise")
        assert (status, failure["kind"], failure["retryable"]) == (500, "tool_server", False)
        assert "EXECUTION_ERROR: the dice are gone" in failure["message"]
        status, failure = await hangs.step("hang")
        assert (status, failure["kind"]) == (500, "timeout")
        status, step = await wrong.step(tool_call("step", {"message": 7, "more": 1}))
        assert (status, step["reward"], step["terminated"]) == (200, 0.0, False)
        assert {tuple(one["field"]) for one in json.loads(told(step))["problems"]} == {("message",), ("more",)}
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        status, failure = await bystander.step("7")
        assert (status, failure["kind"], failure["retryable"]) == (500, "tool_server", True)
        assert "during `step`" in failure["message"]
        status, failure = await Session(client, f"{url}/guessing").post("/reset")
        assert (status, failure["kind"], failure["retryable"]) == (500, "tool_server", True)


# --- a server that says what it is told to ----------------------------------------------------------------------------


Say = Callable[[dict[str, Any]], Any]


@asynccontextmanager
async def scripted(say: Say, schema: Any = TEXT) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve OpenEnv's protocol with answers of `say`; yield the URL and the types of messages that came."""
    heard: list[str] = []

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            asked = json.loads(message.data)
            heard.append(asked["type"])
            if asked["type"] == "close" or (answer := say(asked)) is None:
                break
            await socket.send_str(answer if isinstance(answer, str) else json.dumps(answer))
        return socket

    async def describe(request: web.Request) -> web.Response:
        return web.json_response({"action": schema})

    app = web.Application()
    app.add_routes([web.get("/ws", serve), web.get("/schema", describe)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/", heard
    finally:
        await runner.cleanup()


def answer(reward: Any = None, done: bool = False) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": {"text": "So."}, "reward": reward, "done": done}}


@pytest.mark.parametrize(
    ("said", "kind", "what", "retryable"),
    [
        (None, "tool_server", "closed the connection during `step`", True),
        ("nonsense", "tool_server", "with something that is not a message: 'nonsense'", False),
        ([1], "tool_server", "with something that is not a message: '[1]'", False),
        ({"type": "error", "data": {"code": "X", "message": "bad"}}, "tool_server", "an error: X: bad", False),
        (answer("ten"), "tool_server", "returned the reward 'ten', which is not a finite number", False),
        (answer(float("nan")), "tool_server", "returned the reward nan", False),
        (answer([1.0]), "tool_server", "returned the reward [1.0]", False),
        (answer(None, done=True), "tool_server", "none of its 1 steps had a reward", False),
    ],
)
async def test_what_a_server_does_wrong_is_a_named_failure(said, kind, what, retryable):
    async with (
        scripted(lambda asked: answer() if asked["type"] == "reset" else said) as (url, _),
        running(world=OpenEnvResourcesServer) as client,
    ):
        session = Session(client, url)
        await session.reset()
        status, failure = await session.step("7")
        assert (status, failure["kind"], failure["retryable"]) == (500, kind, retryable)
        assert what in failure["message"]
        assert "hint: " in failure["message"]
        assert (await session.step("7"))[0] == 400


async def test_rewards_may_be_of_any_kind_that_the_protocol_has_and_a_step_may_have_none():
    rewards = iter([1, None, True, -0.5])

    def say(asked: dict[str, Any]) -> Any:
        return answer() if asked["type"] == "reset" else answer(given := next(rewards), done=given == -0.5)

    async with scripted(say) as (url, heard), running(world=OpenEnvResourcesServer) as client:
        session = Session(client, url)
        assert (await session.reset())["observation"] == "So."
        steps = [(await session.step("7"))[1] for _ in range(4)]
        assert [step["reward"] for step in steps] == [1.0, 0.0, 1.0, -0.5]
        assert [step["terminated"] for step in steps] == [False, False, False, True]
        assert heard == ["reset", *["step"] * 4, "close"]


async def test_calls_of_one_reply_are_taken_in_order_until_the_episode_is_over():
    def say(asked: dict[str, Any]) -> Any:
        return answer() if asked["type"] == "reset" else answer(0.25, done=asked["data"]["message"] == "b")

    async with scripted(say) as (url, _), running(world=OpenEnvResourcesServer) as client:
        session = Session(client, url)
        await session.reset()
        calls = [tool_call("step", {"message": text}, call_id=text) for text in "abc"]
        _, step = await session.step(*calls)
    assert (step["reward"], step["terminated"]) == (0.5, True)
    assert [one["output"] for one in step["info"]["tool_outputs"]] == ["So.", "So.", "The episode is over."]


async def test_a_reply_that_is_no_action_is_answered_and_not_sent():
    schema = {"title": "Move", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    async with (
        scripted(lambda asked: answer(), schema) as (url, heard),
        running(world=OpenEnvResourcesServer) as client,
    ):
        session = Session(client, url)
        assert [tool["name"] for tool in (await session.reset())["tools"]] == ["step"]
        for said in ("Left!", "", tool_call("jump", {}), tool_call("step", "{no")):
            status, step = await session.step(said)
            assert (status, step["reward"], step["terminated"]) == (200, 0.0, False)
            assert told(step)
        assert heard == ["reset"]
    assert heard == ["reset", "close"], "the end of the server is the end of its sessions"


async def test_sessions_wait_for_a_place_and_closing_one_makes_room():
    """The server has one place, and says so."""
    taken: list[int] = []

    def say(asked: dict[str, Any]) -> Any:
        if asked["type"] == "reset" and taken:
            return {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "1 of 1"}}
        taken.append(1)
        return answer()

    async with scripted(say) as (url, _), running(world=OpenEnvResourcesServer) as client:
        first, second = Session(client, url), Session(client, url)
        await first.reset()
        waiting = asyncio.create_task(second.reset())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        taken.clear()
        assert (await first.post("/close"))[1] == {"closed": True}
        assert (await waiting)["observation"] == "So."


@pytest.mark.parametrize("environment", ["nowhere", "ftp://127.0.0.1", None, 3])
async def test_a_row_that_names_no_server_is_a_named_failure(environment):
    async with running(world=(OpenEnvResourcesServer, {"environments": {"home": "http://x"}})) as client:
        status, failure = await Session(client, environment).post("/reset")
    assert (status, failure["kind"]) == (500, "tool_server")
    assert "known: home" in failure["message"]


# --- actions and observations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "required", "text_field"),
    [
        ({"message": {"type": "string"}}, ["message"], "message"),
        ({"message": {"type": "string"}, "loud": {"type": "boolean"}}, [], "message"),
        ({"message": {"type": "string"}, "loud": {"type": "boolean"}}, ["message", "loud"], None),
        ({"message": {"type": "string"}, "to": {"type": "string"}}, ["message"], None),
        ({"amount": {"type": "integer"}}, ["amount"], None),
    ],
)
def test_a_plain_text_is_an_action_if_there_is_one_field_that_it_can_be(fields, required, text_field):
    schema = {"properties": {"metadata": {"type": "object"}, **fields}, "required": required, "$defs": {"X": {}}}
    form = read_schema(schema)
    assert form.text_field == text_field
    (tool,) = form.tools
    assert (tool["name"], tool["parameters"]["properties"]) == ("step", fields)
    assert (tool["parameters"]["required"], tool["parameters"]["$defs"]) == (required, {"X": {}})


def test_tools_of_mcp_are_tools_of_the_model():
    form = read_mcp_tools([{"name": "look", "description": "Look.", "inputSchema": {"properties": {"at": {}}}}])
    assert [tool["parameters"] for tool in form.tools] == [{"type": "object", "properties": {"at": {}}}]
    assert form.make_action("look", {"at": 1}) == {"type": "call_tool", "tool_name": "look", "arguments": {"at": 1}}


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"text": "Hello."}, "Hello."),
        ({"at": 1, "goal": 2}, '{"at": 1, "goal": 2}'),
        ({"at": 1}, '{"at": 1}'),
        ({"tool_name": "look", "result": {"content": [{"type": "text", "text": "Sea."}]}, "error": None}, "Sea."),
        ({"tool_name": "look", "result": 5, "error": None}, "5"),
        ({"tool_name": "look", "result": None, "error": {"message": "no"}}, '{"message": "no"}'),
        ({}, ""),
        (None, ""),
    ],
)
def test_an_observation_is_shown_as_text(observation, text):
    assert show_observation(observation) == text


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ("home", "http://here:1"),
        ("ws://here:1/", "http://here:1"),
        ("wss://here/a/", "https://here/a"),
        ("http://here", "http://here"),
    ],
)
def test_an_environment_is_a_name_of_the_config_or_a_url(environment, url):
    assert find_url(environment, {"home": "ws://here:1"}) == url


def test_the_catalog_makes_rows_for_a_url_or_for_a_name_that_the_config_has():
    url = "http://127.0.0.1:8000"
    assert [row["environment"] for row in catalog.make_rows(url, 2)] == [url, url]
    options = {"name": "echo", "arguments": {"level": 2}}
    (row,) = catalog.make_rows(url, 1, 7, options)
    assert (row["environment"], row["seed"], row["arguments"]) == ("echo", 7, {"level": 2})
    assert catalog.make_config(url, options) == {"server": {"environments": {"echo": url}}}
    assert catalog.make_config(url, {}) == {}
    assert catalog.list_environments() == []
    with pytest.raises(catalog.NoEnvironmentUrl, match="'echo_env' is not the URL"):
        catalog.make_rows("echo_env", 1)


def test_metrics_give_the_mean_of_every_environment():
    rollouts = [[{"environment": "a", "reward": 1.0}], [{"environment": "b", "reward": 0.5}]]
    metrics = build_server(OpenEnvResourcesServer).compute_metrics(rollouts)
    assert (metrics["mean/reward/a"], metrics["mean/reward/b"]) == (1.0, 0.5)


def test_the_readme_shows_the_first_example():
    shown = json.loads((HERE.parent / "README.md").read_text().split("```json\n")[1].split("```")[0])
    assert shown == generate_data.rows()[0]
