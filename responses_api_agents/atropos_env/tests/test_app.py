# SPDX-License-Identifier: Apache-2.0
"""The agent without its library, and with it: in an environment that is built as the launcher builds it."""

from pathlib import Path

import pytest

from responses_api_agents.atropos_env.app import AtroposEnv
from responses_api_agents.atropos_env.catalog import list_environments, make_config
from responses_api_agents.atropos_env.generate_data import write
from responses_api_agents.atropos_env.tests.scripted_model import ScriptedModel
from tests.support.gym_process import play_examples
from tests.support.served_run import serve_run
from tests.support.server_venvs import run_tests_in_environment

HERE = Path(__file__).parent
CONFIG = "responses_api_agents/atropos_env/configs/atropos_env.yaml"
BLOCK = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}


def test_the_catalog_lists_the_samples_with_what_they_are():
    listed = {entry["id"].split("/")[-1]: entry["description"] for entry in list_environments()}
    assert listed["add_numbers.py:AddNumbers"] == "One turn: add two numbers. Each trajectory is scored on its own."
    assert set(listed) == {"add_numbers.py:AddNumbers", "guess_number.py:GuessNumber", "short_words.py:ShortWords"}


def test_the_package_of_an_environment_goes_into_the_block_of_the_server():
    assert make_config("gsm:Env", {"requirements": ["gsm==1.2"]}) == {"requirements": ["gsm==1.2"]}
    assert make_config("gsm:Env", {}) == {}


def test_the_example_rows_are_what_the_generator_writes(tmp_path):
    write(tmp_path / "example.jsonl")
    assert (tmp_path / "example.jsonl").read_bytes() == (HERE.parent / "data" / "example.jsonl").read_bytes()


@pytest.mark.parametrize("fields", [{}, {"item": [1, 2], "item_index": 0}])
async def test_a_row_has_an_item_or_its_index(monkeypatch, fields):
    row = {"responses_create_params": {"input": []}, "environment": "any:Env", **fields}
    async with serve_run(monkeypatch, policy_model=ScriptedModel, agent=(AtroposEnv, BLOCK)) as run:
        answer = await run.client.post("agent", "/run", json=row)
        assert "hint: give one of the two" in answer.headers["x-nemo-gym-failure"]


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_with_the_library_rewards_are_its_own():
    run_tests_in_environment(HERE / "with_library.py")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_examples_are_played_in_a_run(tmp_path):
    played = play_examples(CONFIG, "100", tmp_path / "r.jsonl")
    # 34 + 66, 50 + 98, 54 + 6; and no number is 100
    assert sorted(row["reward"] for row in played) == [0.0, 0.0, 1 / 49, 1 / 41, 1.0]
