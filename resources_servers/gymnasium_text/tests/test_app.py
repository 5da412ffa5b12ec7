# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's environments give the rewards here that they give at home; replies that say no action are answered."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym import PARENT_DIR
from resources_servers.gymnasium_text import generate_data
from resources_servers.gymnasium_text.action_words import read_action
from resources_servers.gymnasium_text.known_environments import find_known, make_row
from tests.support.server_venvs import server_python
from tests.support.step_sessions import StepSession, served

TESTS = Path(__file__).parent
LAKE = ("left", "down", "right", "up")
TOY_TEXT = (
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Blackjack-v1",
)


# --- without the library ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("left", "left"),
        ("  **Right.** ", "right"),
        ("I go <action>Up</action>.", "up"),
        ("<action>left</action> or rather <action>down</action>", "down"),
        (r"So \boxed{down}", "down"),
        (r"So \boxed{\text{down}}", "down"),
        ("The hole is near.\nup", "up"),
        ("I will move down now", "down"),
        ("down, down!", "down"),
        ("left or right", None),
        ("<action>jump</action> left", None),
        ("upright", None),
        ("jump", None),
        ("", None),
    ],
)
def test_an_action_is_read_where_a_reply_says_it_clearly(said, action):
    assert read_action(said, LAKE) == action


@given(st.text() | st.from_regex(r"(</?action>|\\boxed\{|\}|left|up|\s){0,50}"))
@settings(max_examples=100, deadline=None)
def test_whatever_a_model_says_is_an_action_or_none(said):
    assert read_action(said, LAKE) in (*LAKE, None)


def test_rows_tell_the_rules_and_the_form():
    row = make_row("Taxi-v4", 7)
    assert (row["env_id"], row["seed"]) == ("Taxi-v4", 7)
    (message,) = row["responses_create_params"]["input"]
    assert "passenger" in message["content"]
    assert "<action>" in message["content"]
    assert "MyEnv-v0" in make_row("mine:MyEnv-v0", 1)["responses_create_params"]["input"][0]["content"]
    assert find_known("mine:FrozenLake-v9").actions == LAKE


# --- with the library -------------------------------------------------------------------------------------------------


def ask_library(rows, tmp_path):
    """Return random play of the rows with the library alone."""
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    command = [server_python("gymnasium_text"), TESTS / "play_with_the_library.py", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def play(url, row, replies):
    """Play a row over HTTP, as far as it goes: all rewards, and the last step."""
    async with StepSession(url, row) as session:
        await session.reset()
        steps = []
        for said in replies:
            steps.append(await session.step(said))
            if steps[-1]["terminated"] or steps[-1]["truncated"]:
                break
        await session.post("/close")
    return [step["reward"] for step in steps], steps[-1]


def compare(url, rows, expected, at_once):
    """Play what the library played, and compare every reward and how each episode ended."""

    async def play_one(row, alone, slots):
        names = find_known(row["env_id"]).actions
        async with slots:
            rewards, last = await play(url, row, [f"<action>{names[one]}</action>" for one in alone["actions"]])
        assert rewards == alone["rewards"]
        assert (last["terminated"], last["truncated"]) == (alone["terminated"], alone["truncated"])

    async def play_all():
        slots = asyncio.Semaphore(at_once)
        await asyncio.gather(*(play_one(*pair, slots) for pair in zip(rows, expected, strict=True)))

    asyncio.run(play_all())


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
def test_episodes_get_the_rewards_of_the_library_and_unreadable_replies_take_no_step(tmp_path, unused_tcp_port):
    rows = [make_row(name, seed) for name in ("FrozenLake-v1", "Blackjack-v1") for seed in (1, 2, 3)]
    expected = ask_library(rows, tmp_path)
    firm = make_row("FrozenLake-v1", 1, env_kwargs={"is_slippery": False})

    async def stumble(url):
        async with StepSession(url, firm) as session:
            begun = await session.reset()
            assert begun["observation"] == "[S]FFF\nFHFH\nFFFH\nHFFG\nActions: left, down, right, up"
            first = await session.step("<think>left</think> Hm, left or right?")
            assert first["observation"] == ("No single action could be read from that.\nActions: left, down, right, up")
            assert (first["reward"], first["terminated"], first["info"]) == (0.0, False, {"unreadable": True})
            second = await session.step("down")
            assert "SFFF\n[F]HFH" in second["observation"]

    with served("gymnasium_text", unused_tcp_port) as url:
        compare(url, rows, expected, at_once=6)
        asyncio.run(stumble(url))


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_every_toy_text_environment_gets_the_rewards_of_the_library_alone_and_sixteen_at_once(
    tmp_path, unused_tcp_port
):
    rows = [make_row(name, seed) for name in TOY_TEXT if "Cliff" not in name for seed in range(12)]
    # A random walk along the cliff takes thousands of steps, unless it may not fall in for long.
    rows += [make_row(name, seed, env_kwargs={"max_episode_steps": 40}) for name in TOY_TEXT[3:5] for seed in range(8)]
    expected = ask_library(rows, tmp_path)
    assert len(rows) == 64
    assert any(alone["truncated"] for alone in expected)
    with served("gymnasium_text", unused_tcp_port) as url:
        compare(url, rows, expected, at_once=16)
        compare(url, rows[::4], expected[::4], at_once=1)


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_solutions_get_the_best_total(unused_tcp_port):
    rows = [*generate_data.rows(), make_row("Taxi-v4", 5), make_row("CliffWalking-v1", 0)]
    code = (
        "import json, sys, nemo_gym\nfrom resources_servers.gymnasium_text.generate_data import solution\n"
        "print(json.dumps([solution(row) for row in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [server_python("gymnasium_text"), "-c", code],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        cwd=PARENT_DIR,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    async def play_all(url):
        return [sum((await play(url, *game))[0]) for game in zip(rows, json.loads(done.stdout), strict=True)]

    with served("gymnasium_text", unused_tcp_port) as url:
        assert asyncio.run(play_all(url)) == [1.0] * 5 + [11.0, -13.0]


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_environments_of_a_user_are_played_by_what_their_rows_declare(monkeypatch, unused_tcp_port):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    slider = {
        "env_id": "own_environments:Slider-v0",
        "actions": {"back": [-0.5], "forth": [0.5]},
        "observation": "You are at {place[0]:.1f}.",
        "seed": 1,
    }

    async def play_all(url):
        async with StepSession(url, slider) as session:
            assert (await session.reset())["observation"] == "You are at 0.0.\nActions: back, forth"
            assert (await session.step("forth"))["observation"] == "You are at 0.5."
            last = await session.step("forth")
            assert (last["reward"], last["terminated"]) == (1.0, True)
        async with StepSession(url, {"env_id": "own_environments:Echo-v0"}) as session:
            assert (await session.reset())["observation"] == "Say something."
            assert (await session.step("hello"))["reward"] == 5.0
        async with StepSession(url, {"env_id": "CartPole-v1", "seed": 1}) as session:
            begun = (await session.reset())["observation"]
            assert begun.startswith("Observation: [")
            assert begun.endswith("Actions: 0, 1")
        for wrong, told in (
            ({**slider, "actions": None}, "need names"),
            ({**slider, "actions": {"far": [5.0]}}, "the row's actions 'far' are not in the space"),
            ({"env_id": "Taxi-v3"}, "Taxi-v4"),
            ({"env_id": "own_environments:Nothing-v0"}, "Nothing"),
        ):
            async with StepSession(url, wrong) as session:
                status, failure = await session.post("/reset")
                assert (status, failure["kind"]) == (500, "tool_server")
                assert told in failure["message"]

    with served("gymnasium_text", unused_tcp_port) as url:
        asyncio.run(play_all(url))


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_the_catalog_lists_toy_text_and_makes_rows_of_any_environment():
    code = """
import json, nemo_gym
from nemo_gym.errors import GymError
from resources_servers.gymnasium_text import catalog
def refused(*arguments):
    try:
        return catalog.make_rows(*arguments)
    except GymError as error:
        return str(error)
print(json.dumps([
    [one["id"] for one in catalog.list_environments()],
    catalog.make_rows("own_environments:Slider-v0", 2, 5, {"actions": {"forth": [0.5]}}),
    [catalog.make_config(name, {}) for name in ("FrozenLake-v1", "own_environments:Slider-v0", "Blackjack-v1")],
    [refused("FrozenLak-v1", 1, 0, {}), refused("nowhere:X-v0", 1, 0, {}), refused("Taxi-v4", 1, 0, {"maps": 1})],
]))
"""
    command = [server_python("gymnasium_text"), "-c", f"import sys; sys.path.append({str(TESTS)!r})\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PARENT_DIR, check=False)
    assert done.returncode == 0, done.stderr
    ids, rows, configs, errors = json.loads(done.stdout)
    assert ids == sorted(TOY_TEXT)
    assert [(row["seed"], row["actions"]) for row in rows] == [(5, {"forth": [0.5]}), (6, {"forth": [0.5]})]
    assert [config["agent"]["max_steps"] for config in configs] == [100, 7, 100]
    for error, told in zip(
        errors, ("did you mean 'FrozenLake-v1'", "cannot be imported", "no option 'maps'"), strict=True
    ):
        assert told in error
        assert "hint:" in error
