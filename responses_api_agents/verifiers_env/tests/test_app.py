# SPDX-License-Identifier: Apache-2.0
"""The agent without its library, and with it: in an environment that is built as the launcher builds it."""

from pathlib import Path

import pytest

from nemo_gym.adapters.installed_packages import UnknownEnvironment, make_importable
from responses_api_agents.verifiers_env.catalog import list_environments, make_config
from tests.support.gym_process import play_examples
from tests.support.server_venvs import run_tests_in_environment

HERE = Path(__file__).parent
CONFIG = "responses_api_agents/verifiers_env/configs/verifiers_env.yaml"
# The extra `dev` of this project wants an older openai than the library does.
TESTING = ("pytest>=8.3", "pytest-asyncio>=0.25")


def test_a_taskset_that_is_not_there_is_named_with_those_near_it():
    with pytest.raises(UnknownEnvironment, match=r"(?s)'count-leters'.*count_letters.*hint: .*requirements"):
        make_importable("count-leters", lambda: [entry["id"] for entry in list_environments()])


def test_what_a_taskset_needs_goes_into_the_block_of_the_server():
    options = {"requirements": ["gsm8k-v1"], "harness": "bash", "config": {"agent": {"max_turns": 2}}}
    assert make_config("gsm8k-v1", options) == {"requirements": ["gsm8k-v1"], "harness": "bash"}
    assert make_config("gsm8k-v1", {}) == {}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", ["with_library.py", "with_bridge.py"])
def test_with_the_library(file):
    run_tests_in_environment(HERE / file, TESTING)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_examples_are_played_in_a_run(tmp_path):
    played = play_examples(CONFIG, "2", tmp_path / "r.jsonl")
    assert all(row["reward"] in (0.1, 1.1) for row in played)  # a number, and for some the right one
    assert {row["reward"] for row in played} == {0.1, 1.1}
