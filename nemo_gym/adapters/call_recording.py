# SPDX-License-Identifier: Apache-2.0
"""Record the model calls of one rollout in a session at the model server's gateway.

The player gets a base URL and a key, and needs no header of ours. Calls are recorded where the model answers them, so
none is lost: in any dialect, with token ids if the model returns them.
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
    """Where to call the model of one rollout: Chat Completions, Responses and, without `/v1`, Anthropic's Messages."""

    base_url: str
    """Ends with `/v1`. Calls to it count as calls of the rollout."""
    api_key: str
    model: str
    """The model name to send; the model server serves its own model whatever the name is."""


class CallRecording:
    """The recorded calls of a running rollout."""

    def __init__(self, sessions: SessionClient, session_id: str, endpoint: ModelEndpoint) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self.endpoint = endpoint

    async def fetch_traces(self) -> list[dict[str, Any]]:
        """Return the calls so far, including failed ones, in the gateway's format."""
        traces: list[dict[str, Any]] = (await self._sessions.fetch(self._session_id))["traces"]
        return traces


@asynccontextmanager
async def record_calls(
    agent: SimpleResponsesAPIAgent, model_server: str, body: BaseRunRequest
) -> AsyncIterator[CallRecording]:
    """Open a session at `model_server` for the rollout that `body` asks `agent` for, and delete it at the end."""
    sessions = SessionClient(model_server, agent.server_client)
    session_id = f"{maybe_rollout_id_from_run_body(body) or 'rollout'}-{uuid4().hex}"
    opened = await sessions.create(session_id, agent=agent.config.name)
    base_url = agent.base_url_for_run(f"{sessions.url_for(session_id)}/v1", body)
    config: Any = getattr(agent.server_client, "global_config_dict", None) or {}
    block: Any = {}
    if model_server in config:
        block = get_first_server_config_dict(config, model_server)
    # Some programs display the model's name or have settings for it, so they are told the real one if possible.
    names = (body.responses_create_params.model, block.get("openai_model"), block.get("model"), model_server)
    model = str(next(filter(None, names)))
    try:
        yield CallRecording(sessions, session_id, ModelEndpoint(base_url, opened["api_key"], model))
    finally:
        try:
            await asyncio.shield(sessions.delete(session_id))
        except Exception as error:
            LOG.warning("%s: could not delete the session of a rollout: %s", agent.config.name, error)
