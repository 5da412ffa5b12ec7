# SPDX-License-Identifier: Apache-2.0
"""The gateway between a program and its rollout: the model is below `/v1`, the tools are at `/mcp`, and nothing else.

Each rollout has its own gateway, on a socket that is mounted in its sandbox. It forwards calls to the rollout's session
at the model server, which records them. It counts the calls and refuses those over budget. The program knows neither
the session's name nor any key.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiohttp import web

from nemo_gym.errors import ServerCallError
from nemo_gym.server_utils import ServerClient

_MODEL_PATHS = ("/v1/responses", "/v1/chat/completions", "/v1/messages")
_COUNT_TOKENS_PATH = "/v1/messages/count_tokens"
_KEPT_REQUEST_HEADERS = (
    "content-type",
    "accept",
    "anthropic-version",
    "anthropic-beta",
    "mcp-session-id",
    "mcp-protocol-version",
)
_DROPPED_REPLY_HEADERS = frozenset(
    {"connection", "content-length", "transfer-encoding", "content-encoding", "set-cookie"}
)
_TOKENS = re.compile(rb'"(input_tokens|prompt_tokens|output_tokens|completion_tokens)"\s*:\s*(\d+)')
_MAX_BODY_BYTES = 256 * 2**20
_BYTES_PER_TOKEN = 4
_MALFORMED = (413, 415, 422)  # refused by our model server, without a call to the model
_MAX_CONSECUTIVE_FAILURES = 12  # Claude Code gives up after 11


@dataclass
class Budget:
    """How much a program may use its model, and how much it has."""

    max_calls: int | None = None
    max_tokens: int | None = None
    calls: int = 0
    tokens: int = 0
    consecutive_failures: int = 0
    exceeded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a call was refused."""
    model_is_down: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once so many calls in a row have failed that the program must be ended."""

    def take_call(self) -> str | None:
        """Count a call, or return why it is refused."""
        if self.max_calls is not None and self.calls >= self.max_calls:
            reason = f"the rollout has made all of its {self.max_calls} model calls"
        elif self.max_tokens is not None and self.tokens >= self.max_tokens:
            reason = f"the rollout has used {self.tokens} of its {self.max_tokens} tokens"
        else:
            self.calls += 1
            return None
        self.exceeded.set()
        return reason

    def record_answer(self, *, failed: bool, tokens: int = 0) -> None:
        """Record the tokens of a call, and whether it failed."""
        self.tokens += tokens
        self.consecutive_failures = self.consecutive_failures + 1 if failed else 0
        if self.consecutive_failures >= _MAX_CONSECUTIVE_FAILURES:
            self.model_is_down.set()


@dataclass(frozen=True)
class Upstream:
    """Where a program's calls are forwarded."""

    model_server: str
    session_path: str
    """The session of the rollout at the model server, without `/v1`."""
    session_key: str
    model_name: str
    tools_server: str
    tools_path: str | None = None
    """The MCP endpoint of the resources server; None if there are no tools."""
    tools_headers: Mapping[str, str] = field(default_factory=dict)


CallState = Literal["open", "abandoned", "malformed", "failed", "answered"]


class RolloutGateway:
    """Answers the calls of one program."""

    def __init__(self, upstream: Upstream, budget: Budget, client: ServerClient) -> None:
        self._upstream = upstream
        self.budget = budget
        self._client = client
        self.last_call: CallState = "answered"
        """What became of the model call that was begun last."""

    @asynccontextmanager
    async def listen(self, *, path: Path | None = None) -> AsyncIterator[int]:
        """Listen on a socket file, or on a local port if `path` is None; yield the port, or 0 for a file."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
        async with AsyncExitStack() as stack:
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            if path is None:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                yield runner.addresses[0][1]
                return
            # A socket address is limited to 107 bytes, and the path of a temporary folder may be longer.
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            await web.UnixSite(runner, f"/proc/self/fd/{folder}/{path.name}").start()
            # The sandbox runs as another user; the folder keeps everyone else out.
            await asyncio.to_thread(path.chmod, 0o666)
            yield 0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        # Some programs append /v1 to a base URL that already ends with it.
        path = request.path.replace("/v1/v1/", "/v1/").rstrip("/")
        upstream = self._upstream
        if path == "/mcp" and upstream.tools_path is not None:
            return await self._forward(request, upstream.tools_server, upstream.tools_path, upstream.tools_headers)
        if path == "/v1/models" and request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": upstream.model_name, "object": "model"}]})
        if path == _COUNT_TOKENS_PATH and request.method == "POST":
            return web.json_response({"input_tokens": len(await request.read()) // _BYTES_PER_TOKEN})
        if path not in _MODEL_PATHS or request.method != "POST":
            return _refuse(404, f"{request.method} {request.path} is not available to this rollout")
        if reason := self.budget.take_call():
            return _refuse(429, f"out of budget: {reason}", {"x-should-retry": "false"})
        path = upstream.session_path + path
        key = {"x-api-key": upstream.session_key}
        number = self.budget.calls
        self.last_call = "open"
        state: CallState = "abandoned"
        try:
            answer = await self._forward(request, upstream.model_server, path, key, is_model_call=True)
            state = "answered" if answer.status < 400 else "malformed" if answer.status in _MALFORMED else "failed"
            return answer
        except (ConnectionResetError, asyncio.IncompleteReadError, aiohttp.ClientPayloadError):
            return _refuse(400, "the request did not come to its end")
        finally:
            if number == self.budget.calls:
                self.last_call = state

    async def _forward(
        self, request: web.Request, server: str, path: str, headers: Mapping[str, str], *, is_model_call: bool = False
    ) -> web.StreamResponse:
        kept = {name: request.headers[name] for name in _KEPT_REQUEST_HEADERS if name in request.headers}
        try:
            reply = await self._client.request(
                server_name=server,
                url_path=path,
                method=request.method,
                data=await request.read(),
                headers={**kept, **headers},
            )
        except (aiohttp.ClientError, ServerCallError) as error:
            if is_model_call:
                self.budget.record_answer(failed=True)
            return _refuse(502, f"cannot reach the server behind this rollout: {type(error).__name__}")
        kept = {name: value for name, value in reply.headers.items() if name.lower() not in _DROPPED_REPLY_HEADERS}
        answer = web.StreamResponse(status=reply.status, headers=kept)
        used: dict[bytes, int] = {}
        tail = b""
        try:
            await answer.prepare(request)
            async for chunk in _read_chunks(reply):
                await answer.write(chunk)
                tail = _count_tokens(tail + chunk, used)
            await answer.write_eof()
        except ConnectionResetError:
            pass  # the program hung up; the call is recorded as far as it got
        finally:
            reply.release()
        if is_model_call:
            self.budget.record_answer(failed=reply.status >= 400, tokens=sum(used.values()))
        return answer


async def _read_chunks(reply: Any) -> AsyncIterator[bytes]:
    """Yield the reply as it arrives; an in-process server answers all at once."""
    if not isinstance(reply, aiohttp.ClientResponse):
        yield await reply.content.read()
        return
    async for chunk in reply.content.iter_any():
        yield chunk


def _count_tokens(data: bytes, used: dict[bytes, int]) -> bytes:
    """Add the largest token counts in `data` to `used`; return its tail, where a number may be cut in two."""
    for kind, number in _TOKENS.findall(data):
        direction = b"in" if kind in (b"input_tokens", b"prompt_tokens") else b"out"
        used[direction] = max(used.get(direction, 0), int(number))
    return data[-64:]


def _refuse(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return web.json_response(error, status=status, headers=headers)
