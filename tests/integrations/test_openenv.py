# SPDX-License-Identifier: Apache-2.0
"""Resources servers speak the protocol of OpenEnv: its messages on the wire, and its real client at the end."""

import asyncio
import json
import os
import subprocess
from contextlib import asynccontextmanager

import aiohttp
import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._servers.installing.installers import find_uv
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.integrations.openenv import OPENENV_VERSION, serve_openenv
from nemo_gym.integrations.playing import read_tasks
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.testing import reply, running, tool_call
from resources_servers.blackjack.app import BlackjackResourcesServer
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer, GetSynonymValueRequest
from resources_servers.string_match.app import StringMatchResourcesServer
from tests.support.gym_process import gym_env_start

FOLDERS = PARENT_DIR / "resources_servers"
GUIDE = PARENT_DIR / "docs" / "guides" / "use-servers-from-other-systems.md"
GUIDE_PROGRAM = GUIDE.read_text().split('title="play_openenv.py"\n')[1].split("```")[0]
STAND = {"text": "<action>stand</action>"}
QUIZ = {
    "responses_create_params": {"input": [{"role": "user", "content": "Say yes."}]},
    "expected_answer": "yes",
    "extraction_mode": "boxed",
}


def example_rows(server):
    return FOLDERS / server / "data" / "example.jsonl"


class Broken(ExampleMultiStepResourcesServer):
    async def get_synonym_value(self, body: GetSynonymValueRequest):
        raise ZeroDivisionError("a bug")


@asynccontextmanager
async def served(**config):
    """URLs by name, the servers behind them, and an HTTP session."""
    blackjack = BlackjackResourcesServer
    servers = {"synonyms": ExampleMultiStepResourcesServer, "quiz": StringMatchResourcesServer, "broken": Broken}
    rows = {"blackjack": example_rows("blackjack"), "synonyms": example_rows("example_multi_step"), "quiz": None}
    rows["broken"] = rows["synonyms"]
    async with (
        running(blackjack=blackjack, **servers, global_config=config) as client,
        serve_openenv(client, rows, "127.0.0.1", 0) as urls,
        aiohttp.ClientSession() as http,
    ):
        yield urls, http


async def ask(socket, kind, data=None):
    await socket.send_str(json.dumps({"type": kind, "data": data or {}}))
    return json.loads(await socket.receive_str(timeout=300))


async def test_an_episode_goes_from_reset_to_its_reward():
    async with served() as (urls, http), http.ws_connect(f"{urls['blackjack']}/ws") as socket:
        begun = await ask(socket, "reset", {"seed": 1, "episode_id": "mine"})
        assert begun["type"] == "observation"
        assert (begun["data"]["reward"], begun["data"]["done"]) == (None, False)
        assert "<action>stand</action>" in begun["data"]["observation"]["text"]
        ended = await ask(socket, "step", STAND)
        assert ended["data"]["done"] is True
        assert ended["data"]["reward"] in (-1.0, 0.0, 1.0)
        assert (await ask(socket, "state"))["data"] == {"episode_id": "mine", "step_count": 1}


async def test_tools_are_called_and_the_answer_is_scored():
    row = read_tasks(str(example_rows("example_multi_step")))[0]
    async with served() as (urls, http), http.ws_connect(f"{urls['synonyms']}/ws") as socket:
        begun = await ask(socket, "reset", {"row": row})
        assert [tool["name"] for tool in begun["data"]["observation"]["tools"]] == [
            tool["name"] for tool in row["responses_create_params"]["tools"]
        ]
        looked_up = await ask(socket, "step", {"tool": "get_synonym_value", "arguments": {"synonym": "a"}})
        assert json.loads(looked_up["data"]["observation"]["text"]) == {"synonym_value": 97}
        assert (looked_up["data"]["reward"], looked_up["data"]["done"]) == (None, False)
        values = {"synonym_values": row["expected_synonym_values"]}
        await ask(socket, "step", {"tool": "extract_synonym_values", "arguments": values})
        assert (await ask(socket, "step", {"text": "done"}))["data"]["reward"] == 1.0


async def test_a_row_that_is_given_needs_no_dataset():
    async with served() as (urls, http), http.ws_connect(f"{urls['quiz']}/ws") as socket:
        assert "needs a row" in (await ask(socket, "reset"))["data"]["message"]
        for answer, reward in (("yes", 1.0), ("no", 0.0)):
            await ask(socket, "reset", {"row": QUIZ})
            assert (await ask(socket, "step", {"text": f"\\boxed{{{answer}}}"}))["data"]["reward"] == reward


async def test_sessions_side_by_side_do_not_mix():
    async with served() as (urls, http), asyncio.TaskGroup() as tasks:

        async def play(seed):
            async with http.ws_connect(f"{urls['blackjack']}/ws") as socket:
                begun = await ask(socket, "reset", {"seed": seed})
                return begun["data"]["observation"]["info"]["player"], (await ask(socket, "step", STAND))["data"]

        playing = [tasks.create_task(play(number % 5)) for number in range(40)]
        outcomes = [await each for each in playing]
    for first, *others in (outcomes[seed::5] for seed in range(5)):
        assert all(other == first for other in others)
    assert len({tuple(player) for player, _ in outcomes}) == 5


async def test_closing_the_websocket_closes_the_session():
    closed = asyncio.Queue()

    class Watched(BlackjackResourcesServer):
        async def close_session(self, session_id: str) -> None:
            await super().close_session(session_id)
            closed.put_nowait(session_id)

    rows = {"blackjack": example_rows("blackjack")}
    async with (
        running(blackjack=Watched) as client,
        serve_openenv(client, rows, "127.0.0.1", 0) as urls,
        aiohttp.ClientSession() as http,
    ):
        for message in ('{"type": "close"}', None):
            socket = await http.ws_connect(f"{urls['blackjack']}/ws")
            await ask(socket, "reset")
            await (socket.close() if message is None else socket.send_str(message))
            await asyncio.wait_for(closed.get(), timeout=300)
            await socket.close()
        left_open = await http.ws_connect(f"{urls['blackjack']}/ws")
        await ask(left_open, "reset")
    assert closed.qsize() == 1, "stopping closes what clients have left open"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("nonsense", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ('{"type": "dance"}', "UNKNOWN_TYPE"),
        ('{"type": "step", "data": {}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "a", "tool": "b"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "a", "more": 1}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "too early"}}', "EXECUTION_ERROR"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"row": {"no": "row"}}}', "EXECUTION_ERROR"),
    ],
)
async def test_a_mistake_is_told_and_the_session_goes_on(sent, code):
    async with served() as (urls, http), http.ws_connect(f"{urls['blackjack']}/ws") as socket:
        await socket.send_str(sent)
        told = json.loads(await socket.receive_str(timeout=300))
        assert (told["type"], told["data"]["code"]) == ("error", code)
        assert (await ask(socket, "reset"))["type"] == "observation"


async def test_a_server_that_breaks_is_an_error_and_no_reward():
    async with served() as (urls, http), http.ws_connect(f"{urls['broken']}/ws") as socket:
        await ask(socket, "reset")
        told = await ask(socket, "step", {"tool": "get_synonym_value", "arguments": {"synonym": "a"}})
        assert told["data"]["code"] == "EXECUTION_ERROR"
        assert "tool_crashed" in told["data"]["message"]
        assert "is over" in (await ask(socket, "step", {"text": "done"}))["data"]["message"]


async def test_what_needs_no_session_is_answered_over_http():
    async with served() as (urls, http):
        base = urls["blackjack"]

        async def call(method, path, **body):
            async with http.request(method, f"{base}{path}", json=body or None) as answer:
                return answer.status, await answer.json()

        assert await call("GET", "/health") == (200, {"status": "healthy"})
        assert (await call("GET", "/state"))[1] == {"episode_id": None, "step_count": 0}
        assert (await call("GET", "/metadata"))[1]["name"] == "blackjack"
        status, schema = await call("GET", "/schema")
        assert set(schema) == {"action", "observation", "state"}
        assert {"text", "tool", "arguments"} <= set(schema["action"]["properties"])
        assert "<action>stand</action>" in (await call("POST", "/reset", seed=0))[1]["observation"]["text"]
        assert (await call("POST", "/step", action=STAND))[0] == 422
        row = read_tasks(str(example_rows("blackjack")))[0]
        assert (await call("POST", "/step", action=STAND, row=row))[1]["done"] is True
        base = base.replace("blackjack", "nobody")
        status, told = await call("GET", "/health")
        assert (status, "served: blackjack" in told["detail"]) == (404, True)


async def test_a_page_of_another_site_and_a_caller_without_the_token_are_kept_out():
    async with served(access_token="secret") as (urls, http):
        url, known = f"{urls['blackjack']}/ws", {"Authorization": "Bearer secret"}
        for status, headers in ((401, {}), (403, {**known, "Origin": "http://evil.example"})):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(url, headers=headers)
            assert refused.value.status == status
        async with http.ws_connect(url, headers=known) as socket:
            assert (await ask(socket, "state"))["type"] == "state"


# --- the real client --------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(900)  # openenv-core brings 320 MB along
def test_the_client_of_openenv_gets_the_rewards_that_verify_gives(tmp_path, unused_tcp_port_factory):
    python = tmp_path / "venv" / "bin" / "python"
    run([find_uv(), "venv", "-q", tmp_path / "venv"])
    run([find_uv(), "pip", "install", "-q", "--python", python, f"openenv-core=={OPENENV_VERSION}"])
    head, port = unused_tcp_port_factory(), unused_tcp_port_factory()
    servers = [f"--resources-server={name}" for name in ("blackjack", "example_multi_step", "string_match")]
    settings = [f"++head_server.port={head}", f"++openenv_port={port}"]
    with gym_env_start("--as=openenv", *servers, *settings, cwd=tmp_path) as gym:
        assert f"openenv: string_match http://127.0.0.1:{port}/string_match" in gym.output
        program = PARENT_DIR / "tests" / "integrations" / "real" / "play_openenv.py"
        said = run([python, program, f"http://127.0.0.1:{port}", FOLDERS], cwd=tmp_path)
        rewards = json.loads(said.splitlines()[-1])
        assert run([python, "-c", GUIDE_PROGRAM.replace("8123", str(port))], cwd=tmp_path) == "reward: 1.0\n"
        expected = asyncio.run(score_directly(head))
        assert gym.stop() == 0
    assert {name: rewards[name] for name in expected} == expected
    assert rewards["blackjack"] == rewards["blackjack side by side"]
    assert set(expected["example_multi_step_resources_server"]) == set(expected["string_match"]) == {0.0, 1.0}


async def score_directly(head):
    """What `/verify` says of the answers that the program gives: right ones to even rows, wrong ones to odd rows."""
    where = BaseServerConfig(host="127.0.0.1", port=head)
    client = await asyncio.to_thread(ServerClient.load_from_global_config, where)
    rewards = {"example_multi_step_resources_server": [], "string_match": []}
    for number, row in enumerate(read_tasks(str(example_rows("example_multi_step")))):
        values = row["expected_synonym_values"][number % 2 :]
        answer = reply(tool_call("extract_synonym_values", {"synonym_values": values}), "done")
        rewards["example_multi_step_resources_server"].append(await verify(client, row, answer))
    for number, row in enumerate(read_tasks(str(example_rows("string_match")))):
        answer = reply(f"{row['expected_answer']}" if number % 2 == 0 else "something else")
        rewards["string_match"].append(await verify(client, row, answer))
    return rewards


async def verify(client, row, answer):
    names = {True: "example_multi_step_resources_server", False: "string_match"}
    body = {**row, "response": answer.model_dump(mode="json")}
    verified = await client.post(names["expected_synonyms" in row], "/verify", json=body)
    await raise_for_status(verified)
    return (await get_response_json(verified))["reward"]


def run(command, **settings):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, env=environment, **settings
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
