# SPDX-License-Identifier: Apache-2.0
"""`gym env start --as`: what is started, where it is said to be, and the official MCP client against it."""

import re
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.integrations.episodes import EpisodeServer, ToolUse
from nemo_gym.server_utils import ServerClient
from tests.support.gym_process import gym_env_start

COUNTER, SYNONYMS = "example_session_state_mgmt_resources_server", "example_multi_step_resources_server"
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "Count to five."}]},
    "initial_count": 3,
    "expected_count": 5,
}


@pytest.mark.thorough
@pytest.mark.slow
async def test_tools_are_found_and_called_over_mcp_and_the_answer_is_verified(tmp_path, unused_tcp_port):
    servers = ["--resources-server=example_session_state_mgmt", "--resources-server=example_multi_step"]
    with gym_env_start("--as=mcp", *servers, f"++head_server.port={unused_tcp_port}", cwd=tmp_path) as gym:
        urls = dict(re.findall(r"^mcp: (\w+) (http://\S+/mcp)$", gym.output, re.M))
        assert set(urls) == {COUNTER, SYNONYMS}
        assert "All 2 / 2 servers ready!" in gym.output, "neither agents nor their model are started"

        async with connect(urls[SYNONYMS]) as anybody:
            listed = {tool.name for tool in (await anybody.list_tools()).tools}
        assert listed == {"get_synonym_value", "extract_synonym_values"}

        where = BaseServerConfig(host="127.0.0.1", port=unused_tcp_port)
        episode = await EpisodeServer(ServerClient.load_from_global_config(where), COUNTER).begin(ROW)
        assert episode.mcp["url"] == urls[COUNTER]
        async with connect(episode.mcp["url"], episode.mcp["headers"]) as client:
            for name, arguments in (("increment_counter", {"count": 2}), ("get_counter_value", {})):
                output = (await client.call_tool(name, arguments)).content[0].text
                episode.add_call(ToolUse(name, arguments), output)
        assert output == '{"count":5}'
        assert (await episode.act("five")).reward == 1.0
        assert gym.stop() == 0


@asynccontextmanager
async def connect(url, headers=None):
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as mcp,
    ):
        yield mcp


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--as", "mpc", "--resources-server", "blackjack"], ["--as", "Did you mean 'mcp'?"]),
        (["--resources-server", "blackjack", "++serve_as=carrier_pigeon"], ["'carrier_pigeon'", "openenv or mcp"]),
        (["--as", "openenv", "--model-type", "replay_model"], ["there is no resources server to serve as openenv"]),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(gym, words, parts):
    said = gym("env", "start", *words)
    assert (said.code, said.out) == (2, "")
    assert not [part for part in parts if part not in said.err], said.err


@pytest.mark.slow
def test_a_model_that_a_verifier_asks_is_started_and_the_policy_is_not(gym):
    judge = ["--resources-server", "equivalence_llm_judge", "--model-type", "replay_model"]
    replies = "++policy_model.responses_api_models.replay_model.replies=[yes]"
    asked = gym("env", "start", "--as", "mcp", *judge, replies, "++dry_run=true")
    assert asked.code == 0, asked.err
    assert {line.split()[0] for line in asked.out.splitlines()[:-1]} == {"equivalence_llm_judge", "policy_model"}
    alone = gym("env", "start", "--as", "mcp", "--resources-server", "blackjack", "++dry_run=true")
    assert [line.split()[0] for line in alone.out.splitlines()[:-1]] == ["blackjack"]
