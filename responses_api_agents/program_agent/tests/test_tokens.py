# SPDX-License-Identifier: Apache-2.0
"""Tokens of a program's turns, with a real model: on the main line and on every branch."""

from typing import Any

import pytest

from nemo_gym.trajectories import TrainableRollout
from responses_api_agents.program_agent.tests.played_programs import play, python_program
from responses_api_models.local_model.app import LocalModel

FIELDS = {"slots": 2, "context_length": 1024, "threads": 1, "batch_size": 64, "return_token_id_information": True}
PROGRAM = """
def say(*texts):
    # What is drawn at random may be tokens that their own text is not split into again, when it comes as history.
    return json.loads(chat(*texts, max_tokens=12, temperature=0))["choices"][0]["message"]["content"]

said = say("Name a fruit.")
helped = say("Name a colour.")
chat("Give this conversation a title.", max_tokens=5, stream=True)
say("Name a colour.", helped, "Another one.")
said_next = say("Name a fruit.", said, "Another one.")
say("Name a fruit.", said, "Another one.", said_next, "And a third one.")
"""


def read_turns(items: list[dict[str, Any]]) -> list[tuple[list[int], list[int]]]:
    """Return prompt and generated ids of what the model said; every item of it must have both, and log-probs."""
    own = [item for item in items if item.get("role") == "assistant" or item["type"] == "function_call"]
    for item in own:
        assert len(item["generation_log_probs"]) == len(item["generation_token_ids"]) > 0
        assert all(number <= 0 for number in item["generation_log_probs"])
    return [(item["prompt_token_ids"], item["generation_token_ids"]) for item in own]


@pytest.mark.thorough
@pytest.mark.local_model
@pytest.mark.slow
async def test_every_turn_has_its_tokens_and_extends_the_one_before_on_its_branch():
    row = await play(model=LocalModel, model_config=FIELDS, **python_program(PROGRAM))
    assert row["model_calls"] == 6, row
    lines = [read_turns(row["response"]["output"]), *(read_turns(branch["output"]) for branch in row["branches"])]
    assert sorted(map(len, lines)) == [1, 2, 3]
    for turns in lines:
        so_far = list[int]()
        for prompt, generated in turns:
            assert prompt[: len(so_far)] == so_far
            so_far = prompt + generated
    rollout = TrainableRollout.from_row(row)
    assert rollout.is_valid
    assert rollout.drift == "clean"
    assert len(rollout.turns) == 3
