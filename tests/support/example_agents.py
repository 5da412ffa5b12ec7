# SPDX-License-Identifier: Apache-2.0
"""What every example of an agent in Python must do, whatever its framework: tests for the folders of the examples.

They are played by `gym eval run`, in the environment that it builds for the agent. A module that imports them names the
agent and its limit: `AGENT, LIMIT = "langgraph_agent", "recursion_limit=14"`.
"""

import asyncio

import pytest

from tests.support.synonym_runs import SynonymRun, play_synonyms


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SynonymRun:
    """A run of the agent."""
    agent = request.module.AGENT
    limit = f"++{agent}.responses_api_agents.{agent}.{request.module.LIMIT}"
    return asyncio.run(play_synonyms(agent, tmp_path_factory.mktemp(agent), limit))


def test_a_task_is_solved_with_tools_called_in_the_session(played):
    row = played.rows["solve"]
    assert row["reward"] == 1.0, played.output
    assert (row["model_calls"], row["branches"]) == (5, [])
    called = [item["name"] for item in row["response"]["output"] if item["type"] == "function_call"]
    assert called[:4] == ["get_synonym_value"] * 3 + ["extract_synonym_values"]
    assert row["response"]["usage"]["total_tokens"] == 25
    heard = [item for item in row["response"]["output"] if item["type"] != "function_call"]
    assert "711" in str(heard)


def test_a_model_that_comes_to_no_end_is_scored(played):
    row = played.rows["repeat"]
    assert row["reward"] == 0.0
    assert "_ng_failure_class" not in row
    assert row["model_calls"] in (7, 8), "smolagents asks for an answer then"


def test_an_endpoint_that_is_down_is_not_the_fault_of_the_agent(played):
    row = played.rows["down"]
    assert (row["_ng_failure_class"], row["model_calls"]) == ("model_endpoint", 0)


def test_nothing_is_sent_to_anybody_else(played):
    assert played.strays == []
