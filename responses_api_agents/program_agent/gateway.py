# SPDX-License-Identifier: Apache-2.0
"""What a program sees of the world: its model below `/v1`, its tools at `/mcp`, and nothing else.

Each rollout has a gateway of its own, on a socket that its sandbox is lent. It passes calls on to the session of the
rollout at the model server, which records them, and counts them: over budget, it refuses. Neither the session's name
nor any key is known inside.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from nemo_gym.errors import ServerCallError
from nemo_gym.server_utils import ServerClient

_MODEL_PATHS = ("/v1/responses", "/v1/chat/completions", "/v1/messages")
_COUNTING_PATH = "/v1/messages/count_tokens"
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
_CHARACTERS_A_TOKEN = 4
_MOST_FAILED_IN_A_ROW = 12  # Claude Code gives up after 11


@dataclass
class Budget:
    """What a program may ask of its model, and what it has."""

    max_calls: int | None = None
    max_tokens: int | None = None
    calls: int = 0
    tokens: int = 0
    failed_in_a_row: int = 0
    exceeded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a call was refused."""
    model_is_down: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once so many calls have failed in a row that only a program that never gives up goes on."""

    def take_call(self) -> str | None:
        """Count a call, or return why it is refused."""
        if self.max_calls is not None and self.calls >= self.max_calls:
            reason = f"the rollout has made its {self.max_calls} model calls"
        elif self.max_tokens is not None and self.tokens >= self.max_tokens:
            reason = f"the rollout has used {self.tokens} of its {self.max_tokens} tokens"
        else:
            self.calls += 1
            return None
        self.exceeded.set()
        return reason

    def note_answer(self, *, has_failed: bool, tokens: int = 0) -> None:
        """Count what a call has cost, and whether the model has answered it."""
        self.tokens += tokens
        self.failed_in_a_row = self.failed_in_a_row + 1 if has_failed else 0
        if self.failed_in_a_row >= _MOST_FAILED_IN_A_ROW:
            self.model_is_down.set()


@dataclass(frozen=True)
class Upstream:
    """Where the calls of a program go."""

    model_server: str
    session_path: str
    """The session of the rollout at the model server, without `/v1`."""
    model_name: str
    tools_server: str
    tools_path: str | None = None
    """The MCP endpoint of the resources server; None: there are no tools."""
    tools_headers: Mapping[str, str] = field(default_factory=dict)


class RolloutGateway:
    """Answers the calls of one program."""

    def __init__(self, upstream: Upstream, budget: Budget, client: ServerClient) -> None:
        self._upstream, self.budget, self._client = upstream, budget, client

    @asynccontextmanager
    async def listen(self, *, path: Path | None = None) -> AsyncIterator[int]:
        """Listen on a socket file, or on a port of this machine; yield the port, which is 0 for a file."""
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
            # The address of a socket has room for 107 bytes, and a folder of temporary files may lie deep.
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            await web.UnixSite(runner, f"/proc/self/fd/{folder}/{path.name}").start()
            # The sandbox's user is another one; the folder keeps everybody else out.
            await asyncio.to_thread(path.chmod, 0o666)
            yield 0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        # Some programs put /v1 behind a base URL that ends with it.
        path = request.path.replace("/v1/v1/", "/v1/").rstrip("/")
        upstream = self._upstream
        if path == "/mcp" and upstream.tools_path is not None:
            return await self._pass_on(request, upstream.tools_server, upstream.tools_path, upstream.tools_headers)
        if path == "/v1/models" and request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": upstream.model_name, "object": "model"}]})
        if path == _COUNTING_PATH and request.method == "POST":
            return web.json_response({"input_tokens": len(await request.read()) // _CHARACTERS_A_TOKEN})
        if path not in _MODEL_PATHS or request.method != "POST":
            return _refuse(404, f"{request.method} {request.path} is not part of this rollout's world")
        if reason := self.budget.take_call():
            return _refuse(429, f"out of budget: {reason}", {"x-should-retry": "false"})
        return await self._pass_on(request, upstream.model_server, upstream.session_path + path, {}, counted=True)

    async def _pass_on(
        self, request: web.Request, server: str, path: str, headers: Mapping[str, str], *, counted: bool = False
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
            if counted:
                self.budget.note_answer(has_failed=True)
            return _refuse(502, f"the server behind this rollout cannot be reached: {type(error).__name__}")
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
            pass  # a program that hangs up has had enough; the call is recorded as far as it got
        finally:
            reply.release()
        if counted:
            self.budget.note_answer(has_failed=reply.status >= 400, tokens=sum(used.values()))
        return answer


async def _read_chunks(reply: Any) -> AsyncIterator[bytes]:
    """Yield what comes, as it comes; a server of this process answers at once."""
    if not isinstance(reply, aiohttp.ClientResponse):
        yield await reply.content.read()
        return
    async for chunk in reply.content.iter_any():
        yield chunk


def _count_tokens(data: bytes, used: dict[bytes, int]) -> bytes:
    """Note the largest number of tokens that `data` tells of each kind; return its end, where one may be cut in two."""
    for kind, number in _TOKENS.findall(data):
        name = b"in" if kind in (b"input_tokens", b"prompt_tokens") else b"out"
        used[name] = max(used.get(name, 0), int(number))
    return data[-64:]


def _refuse(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return web.json_response(error, status=status, headers=headers)
