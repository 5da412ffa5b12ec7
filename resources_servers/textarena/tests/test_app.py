# SPDX-License-Identifier: Apache-2.0
"""Games of TextArena have the rewards here that they have at home, whoever plays the other seats."""

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym import PARENT_DIR
from nemo_gym.testing import agent_config, asked, build_server, running, scripted_model
from resources_servers.textarena import generate_data
from resources_servers.textarena.app import TextArenaResourcesServer
from resources_servers.textarena.scripted_players import ScriptedPlayer
from resources_servers.textarena.tests.play_alone import pick_move
from resources_servers.textarena.tests.turn_taking import make_echo_game
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from tests.support.server_venvs import server_python
from tests.support.small_servers import free_port
from tests.support.step_sessions import StepSession, served

ALONE = Path(__file__).with_name("play_alone.py")
OPPONENT = {"type": "responses_api_models", "name": "opponent"}
OTHER_LOOKS = ("-raw", "-train")
# Two loop for ever once a player is out for illegal moves, and one may take minutes to draw a room that can be solved.
HANG_AT_HOME = {"PublicGoodsGame-v0", "MarketEntryGame-v0", "Sokoban-v0-medium"}
Game = dict[str, Any]


# --- without the library ----------------------------------------------------------------------------------------------


class EchoServer(TextArenaResourcesServer):
    """The server with a game of its own."""

    PRELOAD = ()
    make_environment = staticmethod(make_echo_game)


async def play_echo(model: Sequence[Any], other: Any, *, row: Game | None = None, **config: Any) -> Any:
    """Play the agent's model against another; return the response and its body."""
    servers = {
        "world": (EchoServer, {"opponent": "model", "opponent_model_server": OPPONENT, **config}),
        "policy_model": scripted_model(*model),
        "opponent": other,
        "agent": (GymnasiumAgent, agent_config("world")),
    }
    async with running(**servers) as client:
        played = await client.post("agent", "/run", json={"responses_create_params": asked("Play."), **(row or {})})
        return played, await played.json() if played.ok else await played.text()


async def test_a_model_on_the_other_seat_is_asked_between_the_steps_of_the_game():
    opponent = scripted_model("<think>two?</think>2", "4", "5")
    told_first = {"input": [{"role": "system", "content": "Do not echo."}], "max_output_tokens": 9}
    _, played = await play_echo(["1", "3", "5"], opponent, opponent_responses_create_params=told_first)
    assert (played["reward"], played["steps"], played["info"]["said"]) == (1.0, 3, ["1", "2", "3", "4", "5"])
    assert [message.content for message in opponent.requests[1].input] == ["Do not echo.", "So far: 1 2 3"]
    assert opponent.requests[1].max_output_tokens == 9


async def test_the_opponent_begins_when_the_model_has_the_second_seat():
    _, played = await play_echo(["2", "4"], scripted_model("1", "3", "4"), row={"seat": 1})
    assert played["responses_create_params"]["input"][-1]["content"] == "So far: 1"
    assert (played["reward"], played["step_rewards"]) == (1.0, [0.0, 1.0])


async def test_turns_of_the_opponent_are_no_steps_of_the_model():
    _, played = await play_echo(["1", "3", "5"], scripted_model("2", "4", "6"), max_steps=2)
    assert (played["steps"], played["truncated"], played["info"]["said"]) == (2, True, ["1", "2", "3", "4"])


async def test_an_opponent_that_cannot_be_asked_is_a_failure_and_never_a_win():
    response, text = await play_echo(["1"], scripted_model())
    assert response.status == 500
    assert "its script is shorter" in text
    assert "/v1/responses" in json.loads(response.headers["x-nemo-gym-failure"])["boundary"]


async def test_a_row_that_wants_a_model_needs_one_in_the_config():
    response, _ = await play_echo(["1"], scripted_model("2"), opponent="random", opponent_model_server=None)
    assert "`opponent_model_server`" in json.loads(response.headers["x-nemo-gym-failure"])["message"]
    with pytest.raises(ValidationError, match="hint: set `opponent_model_server`"):
        build_server(TextArenaResourcesServer, opponent="model")


def test_a_script_is_played_again_and_again():
    player = ScriptedPlayer("script", ["[Cooperate]", "[Defect]"], "seed")
    assert [player.choose_move(None, "", "") for _ in range(3)] == ["[Cooperate]", "[Defect]", "[Cooperate]"]


# --- with the library -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python() -> Path:
    return server_python("textarena")


@pytest.fixture(scope="module")
def url(python: Path) -> Iterator[str]:
    """The server in its own virtual environment, with a model for an opponent that always says the same."""
    model = "++opponent.responses_api_models.replay_model"
    with served(
        "textarena",
        free_port(),
        f"{model}.entrypoint=app.py",
        f"{model}.replies=['I think. [4]']",
        f"{model}.on_miss=cycle",
        "++textarena.resources_servers.textarena.opponent_model_server={type:responses_api_models,name:opponent}",
    ) as address:
        yield address


def alone(python: Path, act: str, games: Sequence[Game]) -> list[Game]:
    """Let the library play games, without us."""
    done = subprocess.run([python, ALONE, act], input=json.dumps(games), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_catalog(python: Path, expression: str) -> Any:
    program = f"import json; from resources_servers.textarena.catalog import *; print(json.dumps({expression}))"
    done = subprocess.run(
        [python, "-c", program], cwd=PARENT_DIR, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def follow(url: str, game: Game) -> Game:
    """Play the moves of a game that was played alone, and return how it went here."""
    script = {"opponent": "script", "opponent_moves": game["others"] or ["unused"]}
    task = {key: game[key] for key in ("env_id", "players", "seat", "seed")}
    async with StepSession(url, {**task, **script}) as session:
        await session.reset()
        step: Game = {"reward": 0.0, "terminated": False}
        # A game that the others ended before the first turn is over with the first step, whatever is said. Of one that
        # was stopped, the last move is left out: the script would go on after it.
        for move in (game["moves"] or ["?"]) if game["terminated"] else game["moves"][:-1]:
            step = await session.step(move)
        await session.post("/close")
    return step


async def meet_random_player(url: str, game: Game) -> Game:
    """Play a game against a scripted player, and return it with all moves."""
    rng, moves, step = random.Random(game["seed"]), [], None
    async with StepSession(url, {**game, "opponent": "random"}) as session:
        told = (await session.reset())["observation"]
        while len(moves) < 40 and not (step and step["terminated"]):
            moves.append(pick_move(rng, told or ""))
            step = await session.step(moves[-1])
            told = step["observation"]
        await session.post("/close")
    others = [turn["action"] for turn in step["info"]["opponent_turns"]]
    return {**game, "moves": moves, "others": others, "reward": step["reward"], "terminated": step["terminated"]}


def outcome(game: Game) -> tuple[Any, ...]:
    return game["env_id"], game["seed"], game["reward"], game["terminated"]


GAMES = [
    {"env_id": env_id, "players": players, "seat": seed % players, "seed": seed}
    for seed, (env_id, players) in enumerate(
        [
            ("TicTacToe-v0", 2),
            ("ConnectFour-v0", 2),
            ("KuhnPoker-v0", 2),
            ("PigDice-v0", 2),
            ("Nim-v0", 2),
            ("Othello-v0-tiny", 2),
            ("GuessTheNumber-v0", 1),
            ("Blackjack-v0", 1),
            ("FrozenLake-v0-random", 1),
            ("Minesweeper-v0-small", 1),
        ]
        * 2
    )
]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
async def test_games_have_the_rewards_that_the_library_gives(python, url):
    played = alone(python, "play", GAMES)
    here = await asyncio.gather(*(follow(url, game) for game in played))
    assert [(step["reward"], step["terminated"]) for step in here] == [outcome(game)[2:] for game in played]
    met = await asyncio.gather(*(meet_random_player(url, game) for game in GAMES))
    assert list(map(outcome, met)) == list(map(outcome, alone(python, "replay", met)))
    assert any(game["terminated"] for game in met)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
async def test_the_example_rows_are_won_by_their_solutions(url):
    for row in generate_data.rows():
        async with StepSession(url, row) as session:
            await session.reset()
            steps = [await session.step(move) for move in generate_data.solution(row)]
        assert (steps[-1]["reward"], steps[-1]["terminated"]) == (1.0, True)
        assert not any(step["terminated"] for step in steps[:-1])


@pytest.mark.slow
@pytest.mark.network
async def test_an_illegal_move_is_refused_once_and_then_loses_the_game(url):
    async with StepSession(url, {"env_id": "TicTacToe-v0", "seed": 1}) as session:
        await session.reset()
        refused = await session.step("<think>[4]</think>The middle, please.")
        assert "Player 0 attempted an invalid move." in refused["observation"]
        assert (refused["reward"], refused["terminated"], refused["info"]) == (0.0, False, {"opponent_turns": []})
        lost = await session.step("")
    assert (lost["reward"], lost["terminated"]) == (-1.0, True)
    assert lost["info"]["rewards"] == {"0": -1, "1": 1}
    assert lost["info"]["game_info"]["0"]["invalid_move"] is True


@pytest.mark.slow
@pytest.mark.network
async def test_a_progress_that_the_library_takes_for_a_reason_is_the_reward_of_an_illegal_move(url):
    async with StepSession(url, {"env_id": "Slitherlink-v0", "seed": 1}) as session:
        await session.reset()
        step = [await session.step("no") for _ in range(2)][-1]
    assert step["terminated"] is True
    assert step["info"]["game_info"]["0"]["reason"] == f"Invalid Move: {step['reward']}"


@pytest.mark.slow
@pytest.mark.network
async def test_a_model_is_told_what_is_new_and_its_opponent_the_whole_game(url):
    async with StepSession(url, {"env_id": "TicTacToe-v0", "seed": 1, "opponent": "model", "seat": 1}) as session:
        begun = await session.reset()
        assert begun["observation"].startswith("[GAME] You are Player 1 in Tic Tac Toe.")
        assert begun["info"]["opponent_turns"] == [{"player": 0, "action": "I think. [4]"}]
        step = await session.step("[0]")
    assert (step["reward"], step["terminated"]) == (1.0, True)
    assert [turn["action"] for turn in step["info"]["opponent_turns"]] == ["I think. [4]"] * 3
    assert step["info"]["game_info"]["0"]["invalid_move"] is True


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({"env_id": "TicTacTo-v0"}, "hint: did you mean 'TicTacToe-v0'"),
        ({"env_id": "TicTacToe-v0", "seat": 2}, "there is no seat 2"),
        ({"env_id": "TicTacToe-v0", "opponent": "grandmaster"}, "there is no opponent 'grandmaster'"),
        ({"env_id": "TicTacToe-v0", "opponent": "script"}, "hint: list them in `opponent_moves`"),
        ({"env_id": "CharacterConclave-v0"}, "TypeError"),
    ],
)
async def test_a_game_that_cannot_be_played_is_a_failure_that_says_why(url, task, told):
    async with StepSession(url, {"seed": 1, **task}) as session:
        status, failure = await session.post("/reset")
        if status == 200:
            status, failure = await session.try_step("[Player 1] hello")
    assert (status, failure["kind"]) == (500, "tool_server")
    assert told in failure["message"]


@pytest.mark.slow
@pytest.mark.network
def test_the_catalog_makes_rows_of_a_game_and_the_config_that_they_need(python):
    made = 'make_rows("TicTacToe-v0", 3, 7, {"seat": "alternate", "opponent": "first"})'
    config = 'make_config("TicTacToe-v0", {"opponent_model": "strong_model", "max_steps": 9})'
    rows, blocks = ask_catalog(python, f"[{made}, {config}]")
    assert [(row["seat"], row["seed"], row["players"]) for row in rows] == [(0, 7, 2), (1, 8, 2), (0, 9, 2)]
    assert {row["opponent"] for row in rows} == {"first"}
    assert blocks["server"]["opponent_model_server"]["name"] == "strong_model"
    assert blocks["agent"] == {"max_steps": 9}


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(1200)
async def test_every_game_for_one_or_two_has_the_rewards_that_the_library_gives_16_at_a_time(python, url):
    listed = {one["id"]: one["description"] for one in ask_catalog(python, "list_environments()")}
    assert listed["Chess-v0"].startswith("needs Python 3.12") or listed["Chess-v0"].startswith("players: 2")
    assert listed["Wordle-v0"].startswith("needs network once")
    names = [name for name, text in listed.items() if text.startswith(("players: 1;", "players: 2;"))]
    games = [
        {"env_id": name, "players": int(listed[name][9]), "seat": seed % int(listed[name][9]), "seed": seed}
        for seed, name in enumerate(names)
        if not name.endswith(OTHER_LOOKS) and name not in HANG_AT_HOME
    ]
    # A player whose illegal moves are refused without end leaves no turn to others; a text for a reward is a fault of
    # the library that another test is about.
    played = [
        game
        for game in alone(python, "play", games)
        if (game["moves"] or game["terminated"]) and not isinstance(game["reward"], str)
    ]
    assert len(played) > 150
    at_once = asyncio.Semaphore(16)

    async def follow_in_turn(game: Game) -> Game:
        async with at_once:
            return await follow(url, game)

    here = await asyncio.gather(*map(follow_in_turn, played))
    differing = [
        (outcome(game), step["reward"])
        for game, step in zip(played, here, strict=True)
        if (step["reward"], step["terminated"]) != (game["reward"], game["terminated"])
    ]
    assert differing == []
