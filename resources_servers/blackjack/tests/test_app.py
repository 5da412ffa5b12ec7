# SPDX-License-Identifier: Apache-2.0
"""Hands of blackjack: the rules, the cards that a task decides, and what a model may say."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import ServerClient, get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.blackjack import generate_data
from resources_servers.blackjack.app import BlackjackResourcesServer, hits, seed_of
from resources_servers.blackjack.game import RANKS, REWARDS, Game, value
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent

SHIPPED = Path(__file__).parents[1]
HIT, STAND = "<action>hit</action>", "<action>stand</action>"
DEALER = {"blackjack": BlackjackResourcesServer}
REFS = agent_config("blackjack", max_steps=5)


def row(seed: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": asked("Play."), "seed": seed, **fields}


async def post(client: ServerClient, path: str, cookies: Any = None, **body: Any) -> tuple[int, Any, Any]:
    answer = await client.post("blackjack", path, json=body, cookies=cookies)
    return answer.status, await get_response_json(answer), answer.cookies or cookies


async def played(task: dict[str, Any], *said: Any) -> dict[str, Any]:
    """The last step of a hand."""
    async with running(**DEALER) as client:
        _, step, cookies = await post(client, "/reset", **task)
        for one in said:
            response = reply(one) if isinstance(one, str) else one
            status, step, cookies = await post(client, "/step", cookies, **task, response=response)
            assert status == 200
    return step


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hand", "points"),
    [
        ("K Q", 20),
        ("A K", 21),
        ("A A", 12),
        ("A 5 K", 16),
        ("A A 9", 21),
        ("10 J 5", 25),
        ("2 3 4", 9),
        ("A A A A K", 14),
    ],
)
def test_a_hand_has_a_value(hand, points):
    assert value(hand.split()) == points


@pytest.mark.parametrize(
    ("player", "dealer", "deck", "result"),
    [
        ("K 9", "K 8", "", "win"),
        ("K 8", "K 8", "", "draw"),
        ("K 7", "K 8", "", "loss"),
        ("K 2", "K 6", "K", "win"),
        ("K 9", "6 5", "9", "loss"),
        ("K 9", "2 2", "3 4 9", "loss"),
        ("K 9", "A 6", "5", "win"),
    ],
)
def test_the_dealer_draws_to_17_and_the_better_hand_wins(player, dealer, deck, result):
    game = Game(deck.split()[::-1], player.split(), dealer.split())
    assert game.stand() == result
    assert value(game.dealer) >= 17


def test_over_21_is_bust_and_21_is_not():
    assert Game(["2"], ["K", "K"], ["5", "5"]).hit() == "bust"
    assert Game(["A"], ["K", "K"], ["5", "5"]).hit() is None


@given(st.text(max_size=10))
@settings(max_examples=50, deadline=None)
def test_there_is_one_deck(seed):
    game = Game.dealt(seed)
    assert sorted([*game.deck, *game.player, *game.dealer]) == sorted(RANKS * 4)
    assert (len(game.player), len(game.dealer)) == (2, 2)


# --- an episode -------------------------------------------------------------------------------------------------------


async def test_a_hand_begins_with_two_cards_and_one_of_the_dealers():
    step = await played(row())
    game = Game.dealt(seed_of(row()))
    assert step["observation"] == (
        f"Your hand: [{game.player[0]}, {game.player[1]}] = {value(game.player)}\n"
        f"The dealer shows: {game.dealer[0]}\n"
        f"Answer with {HIT} or {STAND}."
    )
    assert step["info"].items() >= {"player": game.player, "dealer": game.dealer[:1]}.items()


@pytest.mark.parametrize("result", ["win", "draw", "loss"])
async def test_standing_ends_the_hand_with_its_reward(result):
    seed = next(seed for seed in range(200) if Game.dealt(seed_of({"seed": seed})).stand() == result)
    step = await played(row(seed), f"I stop here. {STAND}")
    assert (step["reward"], step["terminated"], step["truncated"]) == (REWARDS[result], True, False)
    assert set(step["info"]) == {"result", "player", "player_value", "dealer", "dealer_value"}
    assert step["info"]["result"] == result
    assert step["info"]["player_value"] == value(step["info"]["player"])
    assert step["info"]["dealer_value"] == value(step["info"]["dealer"])


async def test_hitting_goes_on_until_bust():
    seed = next(seed for seed in range(200) if not (game := Game.dealt(seed_of({"seed": seed}))).hit() and game.hit())
    first = await played(row(seed), HIT)
    assert (first["reward"], first["terminated"], len(first["info"]["player"])) == (0.0, False, 3)
    assert "Your hand: " in first["observation"]
    assert first["observation"].endswith(f"Answer with {HIT} or {STAND}.")
    last = await played(row(seed), HIT, HIT)
    assert (last["reward"], last["terminated"], last["info"]["result"]) == (-1.0, True, "bust")
    assert len(last["info"]["dealer"]) == 2, "the dealer need not draw"


async def test_a_model_plays_a_hand_through_the_agent():
    task = next(one for one in generate_data.rows() if len(generate_data.solution(one)) > 1)
    model = scripted_model(*generate_data.solution(task))
    async with running(**DEALER, agent=(GymnasiumAgent, REFS), policy_model=model) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=task))
    assert (rollout["reward"], rollout["terminated"], rollout["truncated"]) == (1.0, True, False)
    assert rollout["info"]["result"] == "win"
    assert rollout["responses_create_params"]["input"][1]["content"].startswith("Your hand: ")


async def test_there_is_nothing_to_verify():
    async with running(**DEALER) as client:
        assert (await post(client, "/verify", **row(), response=reply(STAND)))[0] == 404


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_hand_that_is_over_is_forgotten():
    server = build_server(BlackjackResourcesServer)
    async with running(blackjack=server) as client:
        _, _, cookies = await post(client, "/reset", **row())
        assert len(server.session_state) == 1
        await post(client, "/step", cookies, **row(), response=reply(STAND))
        assert len(server.session_state) == 0
        status, refused, _ = await post(client, "/step", cookies, **row(), response=reply(STAND))
    assert status == 400
    assert "/reset" in refused["detail"]


async def test_a_hand_that_is_left_is_freed_by_closing():
    server = build_server(BlackjackResourcesServer)
    async with running(blackjack=server) as client:
        _, _, cookies = await post(client, "/reset", **row())
        assert (await post(client, "/close", cookies, **row()))[1] == {"closed": True}
    assert len(server.session_state) == 0


async def test_sessions_have_hands_of_their_own():
    async with running(**DEALER) as client:

        async def one(seed: int) -> Any:
            _, begun, cookies = await post(client, "/reset", **row(seed))
            await asyncio.sleep(0)
            _, step, _ = await post(client, "/step", cookies, **row(seed), response=reply(STAND))
            return begun["info"]["player"], step["info"]["result"]

        dealt = await asyncio.gather(*map(one, range(32)))
    for seed, (player, result) in enumerate(dealt):
        game = Game.dealt(seed_of({"seed": seed}))
        assert (player, result) == (game.player, game.stand())


# --- the cards that a task decides ------------------------------------------------------------------------------------


def test_a_seed_decides_the_cards_whatever_else_there_is():
    places = [{"_ng_task_index": n, "_ng_rollout_index": n, "agent_ref": {"name": str(n)}} for n in range(3)]
    assert len({seed_of({"seed": 7, **place}) for place in places}) == 1
    assert seed_of({"seed": 7}) != seed_of({"seed": 8})
    assert seed_of({"seed": 0}) != seed_of({})


async def test_a_seed_may_be_in_the_metadata_of_the_verifier():
    task = {"responses_create_params": asked("Play."), "verifier_metadata": {"seed": 7}}
    assert (await played(task))["info"] == (await played(row(7)))["info"]


def test_without_a_seed_tasks_and_repeats_are_different_hands_and_the_same_in_every_run():
    places = [{"_ng_task_index": task, "_ng_rollout_index": repeat} for task in range(8) for repeat in range(4)]
    hands = [tuple(Game.dealt(seed_of(place)).deck) for place in places]
    assert len(set(hands)) == len(hands)
    again = [
        tuple(Game.dealt(seed_of({**place, "_ng_rollout_id": "x", "_ng_attempt_index": 2})).deck) for place in places
    ]
    assert again == hands


def test_without_a_seed_the_rows_own_fields_count():
    assert seed_of({"table": 1}) != seed_of({"table": 2})
    assert seed_of({"a": 1, "b": 2}) == seed_of({"b": 2, "a": 1})


def test_the_cards_are_the_same_on_every_machine():
    game = Game.dealt(seed_of({"seed": 0}))
    assert [*game.player, *game.dealer] == ["4", "A", "9", "4"]


async def test_repeats_of_a_row_without_a_seed_differ_through_the_agent():
    task = {"responses_create_params": asked("Play."), "_ng_task_index": 3}
    openings = []
    for repeat in (0, 1, 0):
        async with running(**DEALER, agent=(GymnasiumAgent, REFS), policy_model=scripted_model(STAND)) as client:
            body = {**task, "_ng_rollout_index": repeat}
            rollout = await get_response_json(await client.post("agent", "/run", json=body))
            openings.append(rollout["info"])
    assert openings[0] == openings[2] != openings[1]


# --- what a model may say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [HIT, "<ACTION> Hit </ACTION>", f"{HIT} or rather {STAND}", f"<think>{STAND}</think>{HIT}"]
)
def test_a_hit_is_a_hit(said):
    assert hits(said)


@pytest.mark.parametrize(
    "said", ["", "hit", STAND, f"First {STAND}, no: {HIT}", "<action>double</action>", f"<think>{HIT}"]
)
def test_everything_else_stands(said):
    assert not hits(said)


@pytest.mark.parametrize("response", [reply(), reply(""), reply(reasoning(HIT)), reply(tool_call("hit", "{no"))])
async def test_no_action_stands(response):
    assert (await played(row(), response))["info"] == (await played(row(), STAND))["info"]


@given(st.text() | st.from_regex(r"(<action>|</action>|hit|stand|\s|<think>){0,40}"))
@settings(max_examples=50, deadline=None)
def test_whatever_a_model_says_is_an_action(said):
    assert hits(said) in (True, False)


@pytest.mark.parametrize("said", ["<action>" * 125_000, f"<action>{' ' * 1_000_000}hit", STAND + HIT * 50_000])
def test_a_megabyte_is_read_at_once(said):
    assert not hits(said)


# --- the data ---------------------------------------------------------------------------------------------------------


async def test_every_example_can_be_won():
    for task in generate_data.rows():
        assert (await played(task, *generate_data.solution(task)))["reward"] == 1.0


def test_the_train_hands_are_fair():
    results = {Game.dealt(seed_of(task["verifier_metadata"])).stand() for task in generate_data.all_rows()}
    assert results == {"win", "draw", "loss"}
    examples = {task["verifier_metadata"]["seed"] for task in generate_data.rows()}
    assert not examples & {task["verifier_metadata"]["seed"] for task in generate_data.all_rows()}


def test_the_examples_are_those_of_the_generator_and_the_readme_shows_the_first():
    shipped = [json.loads(line) for line in (SHIPPED / "data" / "example.jsonl").read_text().splitlines()]
    assert shipped == generate_data.rows()
    shown = json.loads((SHIPPED / "README.md").read_text().split("```json\n")[1].split("```")[0])
    assert shown["responses_create_params"]["input"] == shipped[0]["responses_create_params"]["input"]
    assert {**shown, "responses_create_params": 0} == {**shipped[0], "responses_create_params": 0}
