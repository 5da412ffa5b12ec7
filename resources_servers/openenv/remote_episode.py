# SPDX-License-Identifier: Apache-2.0
"""An episode in an OpenEnv environment: a WebSocket to its server, with JSON messages both ways.

The messages are `reset`, `step`, `mcp` and `close`; the answers are `observation`, `mcp` and `error`. A session on the
server lives as long as its socket.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any

import aiohttp

from nemo_gym import grading
from nemo_gym.errors import RolloutFailure
from nemo_gym.server_utils import get_global_aiohttp_client
from resources_servers.openenv.actions import (
    ActionForm,
    read_mcp_tools,
    read_schema,
    show_observation,
    takes_mcp_calls,
)

_MAX_MESSAGE_BYTES = 100 * 2**20
_CLOSE_TIMEOUT_S = 5.0
_FULL_RETRY_S = 1.0
"""How often to ask a full server again; other processes may use it too."""
_FULL = "CAPACITY_REACHED"
_INVALID = "VALIDATION_ERROR"
Answer = dict[str, Any]


class RemoteEpisode:
    """One session, from `reset` to `end`. After a failure it can only be ended."""

    def __init__(
        self, url: str, freed: asyncio.Event, slots: asyncio.Semaphore, *, connect_timeout_s: float, full_wait_s: float
    ) -> None:
        """Set `freed` and release one of `slots` when the session ends; wait `full_wait_s` for a full server."""
        self._url = url
        self._freed = freed
        self._slots = slots
        self._connect_timeout_s = connect_timeout_s
        self._full_wait_s = full_wait_s
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._form = ActionForm([])
        self._turn = asyncio.Lock()
        self._has_reward = self._is_lost = self._is_ended = False
        self.steps = 0
        """The number of steps taken."""

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools the environment offers."""
        return self._form.tools

    async def reset(self, task: dict[str, Any], seed: int, timeout_s: float) -> dict[str, Any]:
        """Start the episode; return `observation` and `info`."""
        schema = await self._fetch_schema()
        data = await self._open({"seed": seed, **(task.get("arguments") or {})}, timeout_s)
        if takes_mcp_calls(schema):
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            listed = (await self._ask("mcp", request, timeout_s)).get("result")
            if not isinstance(listed, dict) or not isinstance(listed.get("tools"), list):
                raise self._fail(f"did not list its tools but answered {listed!r:.200}")
            self._form = read_mcp_tools(listed["tools"])
        else:
            self._form = read_schema(schema)
        return {"observation": show_observation(data.get("observation")), "info": {}}

    async def step(self, action: Sequence[Any], timeout_s: float) -> dict[str, Any]:
        """Take the actions of a reply one after the other: its calls, or its text."""
        calls = action[0]
        text = grading.strip_thinking(action[1])
        self.steps += 1
        field = self._form.text_field
        if not calls and (field is None or not text):
            names = ", ".join(tool["name"] for tool in self.tools) or "none"
            output = f"Nothing was done: call a tool. Available tools: {names}"
            return {"observation": output, "reward": 0.0, "terminated": False, "truncated": False}
        if not calls:
            output, reward, done = await self._act({str(field): text}, timeout_s)
            return {"observation": output, "reward": reward, "terminated": done, "truncated": False}
        outputs = []
        total = 0.0
        done = False
        for name, arguments, _, call_id in calls:
            output = "The episode is over."
            if not done:
                output, reward, done = await self._act(self._form.make_action(name, arguments), timeout_s)
                total += reward
            outputs.append({"type": "function_call_output", "call_id": call_id, "output": output})
        return {"observation": outputs, "reward": total, "terminated": done, "truncated": False}

    async def end(self) -> None:
        """Close the session. Calling this twice is fine."""
        if self._is_ended:
            return
        self._is_ended = True
        try:
            await self._disconnect()
        finally:
            self._slots.release()

    async def _act(self, action: Answer, timeout_s: float) -> tuple[str, float, bool]:
        """Take one action; return what the model sees, the reward, and whether the episode is over."""
        data = await self._ask("step", action, timeout_s, allowed=_INVALID)
        if data.get("code") == _INVALID:
            wrong = [{"field": one.get("loc"), "problem": one.get("msg")} for one in data.get("errors") or ()]
            return json.dumps({"error": "this is no action of the environment", "problems": wrong}), 0.0, False
        done = data.get("done") is True
        reward = data.get("reward")
        if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
            raise self._fail(f"returned the reward {reward!r:.200}, which is not a finite number")
        self._has_reward |= reward is not None
        if done and not self._has_reward:
            raise self._fail(
                f"ended the episode, but none of its {self.steps} steps had a reward",
                hint="does the environment set `reward` in its observations?",
            )
        return show_observation(data.get("observation")), float(reward or 0.0), done

    # --- protocol -----------------------------------------------------------------------------------------------------

    async def _fetch_schema(self) -> dict[str, Any]:
        limit = aiohttp.ClientTimeout(total=self._connect_timeout_s)
        try:
            async with get_global_aiohttp_client().get(f"{self._url}/schema", timeout=limit) as answer:
                answer.raise_for_status()
                schema = (await answer.json())["action"]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as error:
            raise self._fail(
                f"did not return its action schema (GET /schema): {type(error).__name__}: {error}", retryable=True
            ) from error
        return schema if isinstance(schema, dict) else {}

    async def _open(self, parameters: dict[str, Any], timeout_s: float) -> Answer:
        """Connect and reset; wait while the server is full."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._full_wait_s
        while True:
            await self._connect()
            data = await self._ask("reset", parameters, timeout_s, allowed=_FULL)
            if data.get("code") != _FULL:
                return data
            await self._disconnect()
            if loop.time() >= deadline:
                raise self._fail(
                    f"was full for {self._full_wait_s:g} s: {data.get('message')}",
                    hint="allow it more sessions (`max_concurrent_envs`), or run fewer rollouts at a time",
                    retryable=True,
                )
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FULL_RETRY_S):
                    await self._freed.wait()

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                self._socket = await get_global_aiohttp_client().ws_connect(
                    f"{self._url}/ws",
                    max_msg_size=_MAX_MESSAGE_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_TIMEOUT_S),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._fail(f"cannot be reached: {type(error).__name__}: {error}", retryable=True) from error

    async def _ask(self, kind: str, data: dict[str, Any], timeout_s: float, allowed: str = "") -> Answer:
        """Send a message and return the data of its answer; raise for an error, unless its code is `allowed`."""
        assert self._socket is not None
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._socket.send_str(json.dumps({"type": kind, "data": data}))
                    message = await self._socket.receive()
            except TimeoutError:
                self._is_lost = True  # it would not answer `close` either
                raise RolloutFailure(
                    "timeout",
                    f"the environment at {self._url} did not answer `{kind}` within {timeout_s:g} s.\n"
                    "hint: allow more time in this server's config, or find out where it hangs",
                ) from None
            except (aiohttp.ClientError, OSError) as error:
                raise self._fail(f"was lost during `{kind}`: {type(error).__name__}", retryable=True) from error
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise self._fail(f"closed the connection during `{kind}` (code {self._socket.close_code})", retryable=True)
        try:
            answer = json.loads(message.data)
            given = answer["data"]
        except (ValueError, KeyError, TypeError):
            answer = None
            given = None
        if not isinstance(given, dict):
            raise self._fail(f"answered `{kind}` with something that is not a message: {message.data!r:.200}")
        if answer.get("type") == "error" and not (allowed and given.get("code") == allowed):
            raise self._fail(
                f"answered `{kind}` with an error: {given.get('code')}: {given.get('message')} "
                f"{given.get('errors') or ''}".rstrip()
            )
        return given

    async def _disconnect(self) -> None:
        """Close the session, and wait until the server has freed it."""
        socket = self._socket
        self._socket = None
        if socket is not None:
            if not (socket.closed or self._is_lost):
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                        await socket.send_str('{"type": "close"}')
                        while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                            pass
            await socket.close()
            self._freed.set()

    def _fail(self, what: str, *, hint: str = "", retryable: bool = False) -> RolloutFailure:
        hint = hint or "is it a healthy OpenEnv server? See its log"
        return RolloutFailure("tool_server", f"the environment at {self._url} {what}.\nhint: {hint}", retryable)
