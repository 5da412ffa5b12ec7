# SPDX-License-Identifier: Apache-2.0
"""Record what one rollout asks its model: a session at the gateway of the model server, for as long as it is played.

Whoever plays gets a base URL and needs no header, and nothing of what it says is lost: the calls are recorded where the
model answers them, in any dialect, with token ids if it gives them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from nemo_gym.base_resources_server import BaseRunRequest
from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.session_client import SessionClient

__all__ = ["CallRecording", "ModelEndpoint", "record_calls"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelEndpoint:
    """Where the model of one rollout answers: Chat Completions, Responses and, without `/v1`, Anthropic's Messages."""

    base_url: str
    """Ends with `/v1`. Calls to it belong to the rollout."""
    api_key: str
    model: str
    """The name to ask for; the model server serves its own model whatever the name is."""


class CallRecording:
    """The calls of a rollout that is being played."""

    def __init__(self, sessions: SessionClient, session_id: str, endpoint: ModelEndpoint) -> None:
        self._sessions, self._session_id = sessions, session_id
        self.endpoint = endpoint

    async def fetch_traces(self) -> list[dict[str, Any]]:
        """Return the calls so far, those that failed among them, as the gateway tells them."""
        traces: list[dict[str, Any]] = (await self._sessions.fetch(self._session_id))["traces"]
        return traces


@asynccontextmanager
async def record_calls(
    agent: SimpleResponsesAPIAgent, model_server: str, body: BaseRunRequest
) -> AsyncIterator[CallRecording]:
    """Open a session at `model_server` for the rollout that `body` asks `agent` for; it is deleted in the end."""
    sessions = SessionClient(model_server, agent.server_client)
    session_id = f"{maybe_rollout_id_from_run_body(body) or 'rollout'}-{uuid4().hex}"
    opened = await sessions.create(session_id, agent=agent.config.name)
    base_url = agent.base_url_for_run(f"{sessions.url_for(session_id)}/v1", body)
    model = body.responses_create_params.model or _find_model_name(agent, model_server)
    try:
        yield CallRecording(sessions, session_id, ModelEndpoint(base_url, opened["api_key"], model))
    finally:
        try:
            await asyncio.shield(sessions.delete(session_id))
        except Exception as error:
            LOG.warning("%s: the session of a rollout was not deleted: %s", agent.config.name, error)


def _find_model_name(agent: SimpleResponsesAPIAgent, model_server: str) -> str:
    """Return what the config of a model server calls its model, for programs that show it or know it; else its own."""
    config: Any = getattr(agent.server_client, "global_config_dict", None) or {}
    block: Any = get_first_server_config_dict(config, model_server) if model_server in config else {}
    return str(block.get("openai_model") or block.get("model") or model_server)
