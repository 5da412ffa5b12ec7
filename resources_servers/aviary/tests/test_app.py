# SPDX-License-Identifier: Apache-2.0
"""Environments of Aviary give through this server what they give without it: rewards, ends and messages."""

import asyncio
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.testing import build_server
from resources_servers.aviary import catalog, generate_data
from resources_servers.aviary.app import AviaryResourcesServer
from tests.support.server_venvs import server_python
from tests.support.step_sessions import StepSession, served

HERE = Path(__file__).parent
CAVE = "resources_servers.aviary.tests.caves:Cave"
CAVES = "resources_servers.aviary.tests.caves:Caves"
GSM8K = "fhaviary[gsm8k]"
pytestmark = pytest.mark.timeout(600)

DUMMY_CALLS = [
    ("print_story", {"story": "Once."}),
    ("cast_float", {"x": "2.5"}),
    ("cast_int", {"x": 7.9}),
    ("get_random_int", {}),
    ("get_random_int", ""),
    ("fly", {"to": "the moon"}),
    ("cast_int", "{no json"),
]
CAVE_CALLS = [
    ("walk", {"passage": "left"}),
    ("walk", {"passage": "right", "fast": True}),
    ("listen", {}),
    ("dig", {"down": 1}),
    ("walk", "left"),
]


def make_turns(calls: list[Any], draw: random.Random, length: int) -> list[Any]:
    """Return what a player does who now and then says something only."""
    return ["Hm." if draw.random() < 0.15 else draw.sample(calls, draw.randint(1, 2)) for _ in range(length)]


def make_episodes(count: int) -> list[dict[str, Any]]:
    """Return tasks of four kinds by turns, each with what the player does."""
    episodes = []
    for seed in range(count):
        draw = random.Random(seed)
        task, calls = [
            ({"environment": "dummy", "arguments": {"task": "a cat", "end_immediately": seed % 8 == 0}}, DUMMY_CALLS),
            ({"environment": "tasks/dummy"}, DUMMY_CALLS),
            ({"environment": CAVE, "arguments": {"rules": {"depth": 2, "patience": 5}}}, CAVE_CALLS),
            ({"environment": CAVES, "arguments": {"count": 40}, "index": seed % 7}, CAVE_CALLS),
        ][seed % 4]
        episodes.append({"task": {**task, "seed": seed}, "turns": make_turns(calls, draw, 8)})
    return episodes


def play_alone(python: Path, episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the library gives without us."""
    lines = "".join(json.dumps(episode) + "\n" for episode in episodes)
    script = HERE / "play_alone.py"
    done = subprocess.run([python, script], input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def play_here(url: str, episode: dict[str, Any]) -> dict[str, Any]:
    """Return what the server gives, as `play_alone` shows it."""
    async with StepSession(url, episode["task"]) as session:
        begun = await session.reset()
        steps = []
        for turn in episode["turns"]:
            step = await session.step(turn)
            told = [one["output"] for one in step["info"].get("tool_outputs", [])]
            told += [message["content"] for message in step["observation"] or []]
            steps.append([told, step["reward"], step["terminated"], step["truncated"]])
            if step["terminated"] or step["truncated"]:
                break
    return {
        "begun": [message["content"] for message in begun["observation"]],
        "tools": [tool["name"] for tool in begun["tools"]],
        "steps": steps,
    }


async def play_all(url: str, episodes: list[dict[str, Any]], at_once: int) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(at_once)

    async def play(episode: dict[str, Any]) -> dict[str, Any]:
        async with slots:
            return await play_here(url, episode)

    return await asyncio.gather(*map(play, episodes))


# --- with the library -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize(
    ("count", "at_once"), [(16, [16]), pytest.param(96, [1, 16], marks=pytest.mark.exhaustive)], ids=["short", "long"]
)
async def test_every_step_is_what_the_library_gives_without_us(unused_tcp_port, count, at_once):
    python, episodes = await asyncio.to_thread(server_python, "aviary"), make_episodes(count)
    expected = play_alone(python, episodes)
    assert len({step[1] for one in expected for step in one["steps"]}) > 5, "the rewards differ"
    ends = {tuple(one["steps"][-1][2:]) for one in expected}
    assert ends == {(True, False), (False, True), (False, False)}
    with served("aviary", unused_tcp_port) as url:
        for number in at_once:
            assert await play_all(url, episodes, number) == expected
        await check_mistakes(url)


async def check_mistakes(url: str) -> None:
    """A row that cannot be played, and a tool that raises, fail by name; a call with wrong arguments does not."""
    for task, told in [
        ({"environment": "dumy"}, "there is no environment 'dumy'"),
        ({"environment": "os:system", "arguments": {"command": "true"}}, "not an Environment or TaskDataset"),
        ({"environment": "no.such:Cave"}, "No module named 'no'"),
        ({"environment": "tasks/gsm8k"}, "hint: add fhaviary[gsm8k] to `requirements`"),
        ({"environment": CAVES, "arguments": {"count": 3}, "index": 3}, "range object index out of range"),
        ({"arguments": {}}, "a row needs a text `environment`"),
    ]:
        async with StepSession(url, task) as session:
            status, failure = await session.post("/reset")
        assert (status, failure["kind"], failure["retryable"]) == (500, "tool_server", False)
        assert told in failure["message"]
    for arguments in ({}, {"way": "left"}, {"passage": "left", "slow": True}):
        async with StepSession(url, {"environment": CAVE, "seed": 1}) as session:
            await session.reset()
            step = await session.step([("walk", arguments)])
            assert step["info"]["tool_outputs"][0]["output"] == "Invalid tool call: INVALID"
            assert step["reward"] == -0.25
    upwards = [("walk", {"passage": "up"})]
    async with StepSession(url, {"environment": CAVE, "seed": 1}) as session:
        await session.reset()
        status, failure = await session.try_step(upwards)
        assert (status, failure["kind"]) == (500, "tool_server")
        assert "there is no passage up" in failure["message"]
    async with StepSession(url, {"environment": CAVE, "seed": 1, "handle_tool_exc": True}) as session:
        await session.reset()
        step = await session.step(upwards)
        assert "there is no passage up" in step["info"]["tool_outputs"][0]["output"]
        assert (step["reward"], step["terminated"]) == (0.0, False)


@pytest.mark.exhaustive
@pytest.mark.network
async def test_the_calculator_of_gsm8k_scores_as_it_does_without_us_and_its_dataset_says_that_it_needs_a_network(
    unused_tcp_port,
):
    python = await asyncio.to_thread(server_python, "aviary", GSM8K)
    problem = {"problem_id": "1", "problem": "What is 2 + 3?", "answer": 5.0}
    answers = [[("submit_answer", {"answer": said})] for said in ("5", "5.0001", "6", "five", "-5")]
    calls = [[("calculator", {"expr": said})] for said in ("2+3", "2+", "1/0", "9*9")]
    invalid = [[("fly", {})], [("calculator", "{no")], [("fly", {}), ("calculator", {"expr": "1"})], "It is 5."]
    episodes = [
        {"task": {"environment": "calculator", "arguments": problem, "seed": 0}, "turns": [first, second]}
        for first in [*calls, *invalid]
        for second in [*answers, *invalid]
    ]
    assert len(episodes) >= 50
    requirements = f"++aviary.resources_servers.aviary.requirements=['{GSM8K}']"
    with served("aviary", unused_tcp_port, requirements) as url:
        assert await play_all(url, episodes, at_once=4) == play_alone(python, episodes)
        async with StepSession(url, {"environment": "tasks/gsm8k", "arguments": {"split": "test"}, "index": 0}) as one:
            status, failure = await one.post("/reset")
    assert status == 500
    assert "hint: they come from the Hugging Face Hub" in failure["message"]


# --- without the library ----------------------------------------------------------------------------------------------


def test_the_catalog_lists_what_is_installed():
    listed = {one["id"]: one["description"] for one in catalog.list_environments()}
    assert set(listed) == {"dummy", "tasks/dummy"}
    assert all(listed.values())


def test_rows_of_an_environment_differ_by_their_seed_and_task():
    rows = catalog.make_rows("dummy", 3, seed=4)
    assert [row["seed"] for row in rows] == [4, 5, 6]
    assert len({row["arguments"]["task"] for row in rows}) == 3
    (own,) = catalog.make_rows(CAVES, 1, options={"arguments": {"count": 9}, "first": 5})
    assert (own["environment"], own["arguments"], own["index"]) == (CAVES, {"count": 9}, 5)
    assert all("agent_ref" not in row and row["responses_create_params"]["input"] for row in rows)


@pytest.mark.parametrize(
    ("name", "hint"), [("dumy", "did you mean 'dummy'"), ("tasks/gsm8k", r"add `fhaviary\[gsm8k\]`")]
)
def test_an_environment_that_is_not_there_is_named_with_what_to_do(name, hint):
    with pytest.raises(catalog.UnknownEnvironment, match=hint):
        catalog.make_rows(name, 1)


def test_metrics_give_the_mean_of_every_environment():
    rollouts = [[{"environment": "dummy", "reward": 1.0}], [{"environment": CAVE, "reward": 0.5}]]
    metrics = build_server(AviaryResourcesServer).compute_metrics(rollouts)
    assert (metrics["mean/reward/dummy"], metrics[f"mean/reward/{CAVE}"]) == (1.0, 0.5)


def test_the_readme_shows_the_first_example():
    shown = json.loads((HERE.parent / "README.md").read_text().split("```json\n")[1].split("```")[0])
    assert shown == generate_data.rows()[0]
