# SPDX-License-Identifier: Apache-2.0
"""Environments that speak OpenEnv's protocol, wherever they run: a session there is an episode here.

OpenEnv need not be installed. The environments are remote, so episodes live in this server's event loop rather than in
separate processes.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import Field, PositiveFloat, PrivateAttr

from nemo_gym.adapters import StepServerConfig, ToolStepServer
from nemo_gym.errors import RolloutFailure
from resources_servers.openenv.remote_episode import RemoteEpisode


class OpenEnvResourcesServerConfig(StepServerConfig):
    """Config of the server."""

    environments: dict[str, str] = Field(default_factory=dict)
    """URLs of OpenEnv servers by the names used in rows."""
    connect_timeout_s: PositiveFloat = 10.0
    """The time limit for an OpenEnv server to accept a connection."""
    full_timeout_s: PositiveFloat = 3600.0
    """How long an episode waits for a free session on a full OpenEnv server."""


class OpenEnvResourcesServer(ToolStepServer):
    """Plays in the environments of OpenEnv servers."""

    MEAN_REWARDS_BY = "environment"
    config: OpenEnvResourcesServerConfig
    _freed: dict[str, asyncio.Event] = PrivateAttr(default_factory=lambda: defaultdict(asyncio.Event))
    _session_slots: asyncio.Semaphore | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        """Return the app, which ends all episodes on shutdown and so frees their sessions on other servers."""
        app = super().setup_webserver()
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(running: Any) -> AsyncIterator[Any]:
            async with inner(running) as state:
                yield state
                await asyncio.gather(*(self.close_session(session_id) for session_id, _ in self.session_state.items()))

        app.router.lifespan_context = lifespan
        return app

    async def open_episode(self, task: dict[str, Any]) -> Any:
        """Return the episode of a row, once fewer than `max_sessions` are running."""
        url = find_url(task.get("environment"), self.config.environments)
        if self._session_slots is None:
            self._session_slots = asyncio.Semaphore(self.config.max_sessions)
        await self._session_slots.acquire()
        return RemoteEpisode(
            url,
            self._freed[url],
            self._session_slots,
            connect_timeout_s=self.config.connect_timeout_s,
            full_wait_s=self.config.full_timeout_s,
        )


def find_url(environment: Any, known: dict[str, str]) -> str:
    """Return the URL of the environment in a row, which is a name from the config or a URL."""
    found = known.get(environment, environment) if isinstance(environment, str) else ""
    scheme, separator, place = found.partition("://")
    schemes = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
    if not separator or scheme not in schemes:
        raise RolloutFailure(
            "tool_server",
            f"the row's `environment` is {environment!r:.200}, which is neither a URL nor a name from the config.\n"
            f"known: {', '.join(sorted(known)) or 'none'}\n"
            "hint: add it to `environments` in this server's config, with the URL of an OpenEnv server",
        )
    return f"{schemes[scheme]}://{place.rstrip('/')}"


if __name__ == "__main__":
    OpenEnvResourcesServer.run_webserver()
