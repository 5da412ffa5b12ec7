# SPDX-License-Identifier: Apache-2.0
"""A function of an answer and its row, as a resources server."""

import json
from typing import Any

import pytest

from nemo_gym.adapters import ScoringServer
from nemo_gym.testing import asked, reply, running
from tests.adapters.environments import score_capital


class CapitalsServer(ScoringServer):
    """What its author writes."""

    score = staticmethod(score_capital)


async def verify(said: Any) -> Any:
    body = {"responses_create_params": asked("?"), "response": reply(said), "capital": "Paris"}
    async with running(
        world=(CapitalsServer, {"scorer_timeout_seconds": 3 if said == "hang" else 60, "num_processes": 1})
    ) as client:
        response = await client.post("world", "/verify", json=body)
        return json.loads(await response.text()) if response.ok else json.loads(response.headers["x-nemo-gym-failure"])


@pytest.mark.parametrize(
    ("said", "answer", "reward"),
    [
        ("<answer>Paris</answer>", "Paris", 1.0),
        (r"<think>Rome?</think>It is \boxed{Paris}.", "Paris", 1.0),
        ("Paris", "Paris", 1.0),
        ("Rome", "Rome", 0.0),
        ("", None, 0.0),
    ],
)
async def test_an_answer_is_scored_by_the_function(said, answer, reward):
    scored = await verify(said)
    assert (scored["extracted_answer"], scored["reward"], scored["capital"]) == (answer, reward, "Paris")


async def test_a_score_of_named_parts_is_their_sum():
    scored = await verify("parts")
    assert (scored["reward"], scored["reward_components"]) == (0.75, {"right": 0.5, "short": 0.25})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("raise", "no such country"),
        ("hang", "gave no answer within 3 s"),
        ("crash", "ended without an answer"),
        ("nothing", "returned None, which is not a finite number"),
    ],
)
async def test_a_scorer_that_fails_is_a_failure_and_never_a_zero(said, told):
    failure = await verify(said)
    assert failure["kind"] == "verifier"
    assert told in failure["message"]
