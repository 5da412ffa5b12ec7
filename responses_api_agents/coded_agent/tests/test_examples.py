# SPDX-License-Identifier: Apache-2.0
"""The agents that come with a framework each, played by `gym eval run` in the environments that it builds for them."""

import asyncio

import pytest

from tests.support.synonym_runs import SynonymRun, play_synonyms

pytestmark = pytest.mark.timeout(900)

FRAMEWORK = (pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.network)
LIMITS = {
    "openai_client_agent": "max_turns=7",
    "anthropic_client_agent": "max_turns=7",
    "openai_agents_sdk_agent": "max_turns=7",
    "langgraph_agent": "recursion_limit=14",
    "smolagents_agent": "max_steps=7",
}
AGENTS = [
    pytest.param(name, marks=pytest.mark.slow if name.endswith("_client_agent") else FRAMEWORK) for name in LIMITS
]


@pytest.fixture(scope="module", params=AGENTS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SynonymRun:
    """A run of one of the agents."""
    agent = request.param
    limit = f"++{agent}.responses_api_agents.{agent}.{LIMITS[agent]}"
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
