# SPDX-License-Identifier: Apache-2.0
"""The agent without its library, and with it: in an environment that is built as the launcher builds it."""

from pathlib import Path

import pytest

from nemo_gym.adapters.installed_packages import UnknownEnvironment
from responses_api_agents.verifiers_v0_env.catalog import list_environments, make_config
from responses_api_agents.verifiers_v0_env.environments import find_module
from tests.support.gym_process import play_examples
from tests.support.server_venvs import run_tests_in_environment

HERE = Path(__file__).parent
CONFIG = "responses_api_agents/verifiers_v0_env/configs/verifiers_v0_env.yaml"


def test_an_environment_that_is_not_there_is_named_with_those_near_it():
    with pytest.raises(UnknownEnvironment, match=r"(?s)'guess_numbr'.*guess_number\.py.*hint: .*requirements"):
        find_module("guess_numbr")


def test_a_path_is_an_environment_too():
    assert find_module(list_environments()[-1]["id"]) == "shop_till"


def test_the_package_of_an_environment_goes_into_the_block_of_the_server():
    assert make_config("wordle", {"requirements": ["wordle==1.2"]}) == {"requirements": ["wordle==1.2"]}
    assert make_config("wordle", {}) == {}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_with_the_library_rewards_are_its_own():
    run_tests_in_environment(HERE / "with_library.py")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_the_examples_are_played_in_a_run(tmp_path, workers):
    played = play_examples(CONFIG, "heron jetty inlet amber", tmp_path / "r.jsonl", *workers)
    assert sum(row["reward"] for row in played) == 1.0  # the reply is the answer to the first row
