# SPDX-License-Identifier: Apache-2.0
"""What the server gives for an answer is what the library gives for it, of every generator there is."""

import asyncio
import json
from typing import Any

import pytest

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, build_server, reply, running
from resources_servers.reasoning_gym.app import ReasoningGymResourcesServer
from resources_servers.reasoning_gym.catalog import make_rows
from resources_servers.reasoning_gym.generate_data import generate, list_tasks, make_row

# Of these the library gives no answer, but an example of one.
EXAMPLES = {"propositional_logic": "example_answer", "rubiks_cube": "example_correct_answer"}
WRONG = "17 wrong answers"


def score_with_library(dataset: Any, answer: str, entry: dict[str, Any]) -> float:
    """Score as a trainer that has the library does; one that fails on an answer gives nothing for it."""
    try:
        return float(dataset.score_answer(answer, entry))
    except Exception:
        return 0.0


def make_episodes(names: list[str], entries: int, seed: int) -> list[tuple[dict[str, Any], str, float]]:
    """Rows, an answer to each, and what the library gives for it: a right one, a wrong one, and that of another row."""
    from reasoning_gym import create_dataset

    episodes = []
    for name in names:
        dataset = create_dataset(name, size=entries, seed=seed)
        drawn = [dataset[place] for place in range(entries)]
        right = [entry["answer"] or entry["metadata"].get(EXAMPLES.get(name, "")) for entry in drawn]
        for place, entry in enumerate(drawn):
            answers = {answer for answer in (right[place], WRONG, right[place - 1]) if answer}
            episodes += [
                (make_row(entry), answer, score_with_library(dataset, answer, entry)) for answer in sorted(answers)
            ]
    return episodes


async def find_differences(episodes: list[tuple[dict[str, Any], str, float]]) -> list[Any]:
    """Play all episodes at once; those that are scored otherwise than by the library."""
    server = build_server(ReasoningGymResourcesServer, num_processes=2, scorer_timeout_seconds=60)
    async with running(reasoning_gym=server) as client:

        async def play(row: dict[str, Any], answer: str) -> float:
            said = reply(f"<answer>{answer}</answer>")
            body = {**json.loads(json.dumps(row)), "responses_create_params": asked("?"), "response": said}
            return (await get_response_json(await client.post("reasoning_gym", "/verify", json=body)))["reward"]

        rewards = await asyncio.gather(*(play(row, answer) for row, answer, _ in episodes))
    return [
        (row["metadata"]["source_dataset"], answer, expected, reward)
        for (row, answer, expected), reward in zip(episodes, rewards, strict=True)
        if reward != expected
    ]


@pytest.mark.exhaustive
async def test_every_generator_scores_right_and_wrong_answers_as_the_library_does():
    episodes = make_episodes(list_tasks(), 1, 11)
    assert len(episodes) > 200
    assert {row["metadata"]["source_dataset"] for row, _, _ in episodes} == set(list_tasks())
    assert await find_differences(episodes) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
async def test_many_entries_of_every_generator_are_scored_as_the_library_does():
    episodes = make_episodes(list_tasks(), 5, 12)
    assert len(episodes) > 1000
    assert await find_differences(episodes) == []


@pytest.mark.thorough
async def test_rows_of_a_mixture_and_of_levels_are_scored_by_their_own_generators():
    from reasoning_gym import create_dataset

    weights = {"chain_sum": 3, "letter_counting": 2, "gcd": 1}
    rows = make_rows("composite", 30, 3, {"weights": weights})
    rows += make_rows("chain_sum", 20, 3, {"level": [0, 4]})
    assert {row["metadata"]["source_dataset"] for row in rows} == set(weights)
    scorers = {name: create_dataset(name) for name in weights}
    episodes = [
        (row, answer, score_with_library(scorers[row["metadata"]["source_dataset"]], answer, row))
        for row in rows
        for answer in (row["answer"], WRONG)
    ]
    assert {score for _, answer, score in episodes if answer != WRONG} == {1.0}
    assert await find_differences(episodes) == []


def test_a_generator_at_no_level_gives_the_rows_of_the_library():
    assert make_rows("gcd", 3, 5, {"min_numbers": 3, "max_numbers": 3}) == list(
        generate(["gcd"], 3, 5, {"gcd": {"min_numbers": 3, "max_numbers": 3}})
    )
