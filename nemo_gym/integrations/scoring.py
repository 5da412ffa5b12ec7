# SPDX-License-Identifier: Apache-2.0
"""Rewards alone, for trainers that generate by themselves: a verifier that runs elsewhere scores a text."""

import asyncio
from collections.abc import Mapping
from typing import Any

from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.integrations.episodes import VerifiedEpisode
from nemo_gym.integrations.live import LiveGymError
from nemo_gym.server_utils import ServerClient


async def connect(head_server: str | None = None) -> ServerClient:
    """Return a client for servers that run elsewhere: `host:port` of a head server, or that of the config."""
    where = None
    if head_server is not None:
        host, _, port = head_server.rpartition(":")
        if not (host and port.isdigit()):
            raise LiveGymError(f"the head server is given as {head_server!r}.\nhint: write it as host:port")
        where = BaseServerConfig(host=host, port=int(port))
    return await asyncio.to_thread(ServerClient.load_from_global_config, where)


async def score_reply(client: ServerClient, row: Mapping[str, Any], text: str) -> float:
    """Return the reward of `text` as the whole answer to the row; RolloutFailure if the verifier gives none.

    For environments without tools: the session is opened, nothing is done in it, and the answer is verified.
    """
    episode = VerifiedEpisode(client, _find_resources_server(client, row), row)
    await episode.begin()
    reward = (await episode.act(text)).reward
    assert reward is not None, "an answer that is not scored is a failure"
    return reward


def _find_resources_server(client: ServerClient, row: Mapping[str, Any]) -> str:
    agent = str((row.get(AGENT_REF_KEY_NAME) or {}).get("name"))
    block = get_first_server_config_dict(client.global_config_dict, agent)
    name = (block.get("resources_server") or {}).get("name")
    if name is None:
        raise LiveGymError(
            f"the agent {agent!r} names no resources server, so that nobody can verify its answers.\n"
            "hint: play its rows instead of scoring texts"
        )
    return str(name)
