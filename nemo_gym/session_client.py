# SPDX-License-Identifier: Apache-2.0
"""The trainer's side of a session gateway: open sessions, set rewards, fetch what agents left behind.

sessions = SessionClient()                             # of the model server `policy_model`
opened = await sessions.create("rollout-17")           # opened["api_key"] is the key for the agent's client
base_url = sessions.url_for("rollout-17") + "/v1"      # for an agent's OpenAI client; Anthropic's: without /v1
await sessions.set_reward("rollout-17", 1.0)
rollout = await sessions.fetch_rollout("rollout-17")
"""

from collections.abc import Mapping
from typing import Any

from nemo_gym._servers.process_environment import run_token_header
from nemo_gym._training.record import TrainableRollout
from nemo_gym._training.sessions import SessionRefused
from nemo_gym.server_utils import ServerClient, get_response_json

__all__ = ["SessionClient", "SessionRefused"]


class SessionClient:
    """Calls the session gateway of one model server, with the token of its run. Calls may raise SessionRefused."""

    def __init__(self, server: str = "policy_model", client: ServerClient | None = None) -> None:
        """Connect to the model server named `server` in the config; `client` calls the servers of the run.

        Without `client`, ask the head server, which blocks briefly.
        """
        self._server = server
        self._client = client or ServerClient.load_from_global_config()
        self._headers = run_token_header(self._client.head_server_config)

    def url_for(self, session_id: str) -> str:
        """Return the URL to give to an agent of this session."""
        return f"{self._client._find_address(self._server).base_url}/sessions/{session_id}"

    async def create(
        self,
        session_id: str | None = None,
        *,
        task_index: int = 0,
        rollout_index: int = 0,
        agent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Open a session; return its `id`, and the `api_key` that all of its agent's calls must have.

        The key also stands for the session where an agent cannot be given a path.
        """
        labels = {"task_index": task_index, "rollout_index": rollout_index, "agent": agent}
        return await self._call("POST", "", {"id": session_id, **labels, "metadata": dict(metadata or {})})

    async def set_reward(
        self, session_id: str, reward: float, components: Mapping[str, float] | None = None, *, final: bool = True
    ) -> dict[str, Any]:
        """Set the reward of a session, and end the session if the reward is `final`."""
        body = {"reward": reward, "components": dict(components or {}), "final": final}
        return await self._call("POST", f"/{session_id}/reward", body)

    async def fail(self, session_id: str, message: str, kind: str = "agent") -> dict[str, Any]:
        """End a session without a reward."""
        return await self._call("POST", f"/{session_id}/failure", {"message": message, "kind": kind})

    async def fetch(self, session_id: str) -> dict[str, Any]:
        """Return a session with the traces of its calls and, once it has ended, its trainable rollout as JSON."""
        return await self._call("GET", f"/{session_id}")

    async def fetch_rollout(self, session_id: str) -> TrainableRollout:
        """Return the canonical trainable rollout of a session that has ended."""
        stored = (await self.fetch(session_id))["rollout"]
        if stored is None:
            raise SessionRefused(
                409,
                f"session {session_id!r} is still open, so there is no rollout yet.\n"
                "hint: set its reward, or mark it as failed",
            )
        return TrainableRollout.from_json(stored)

    async def list_ended(self, after: int = 0, limit: int = 100) -> tuple[list[dict[str, Any]], int]:
        """Return ended sessions after the cursor `after`, in order, and the cursor to continue with."""
        page = await self._call("GET", f"?done=true&after={after}&limit={limit}")
        return page["sessions"], page["next"]

    async def delete(self, session_id: str) -> None:
        """Make the server forget a session."""
        await self._call("DELETE", f"/{session_id}")

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        call: dict[str, Any] = {"headers": self._headers}
        if body is not None:
            call["json"] = body
        reply = await self._client.request(self._server, f"/sessions{path}", method, **call)
        answer: Any = await get_response_json(reply)
        if not reply.ok:
            detail = answer
            if isinstance(answer, dict):
                detail = answer.get("detail", answer)
            if reply.status == 404 and detail == "Not Found":
                detail = (
                    f"model server {self._server!r} has no session gateway.\n"
                    "hint: its config switches it off, or gives the server several processes (`num_workers`, "
                    "`num_replicas`)"
                )
            raise SessionRefused(reply.status, str(detail))
        told: dict[str, Any] = answer
        return told
