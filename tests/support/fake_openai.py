# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible endpoint for tests: real HTTP on a free port, replies from a script, faults on demand.

It does not check requests; it records them. A call that the script has no reply for gets the reply `default`.

    async with FakeOpenAI(chat("hello")) as fake:
        model = build_server(VLLMModel, base_url=fake.base_url, ...)
"""

import itertools
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from nemo_gym._servers.http_session import close_global_aiohttp_client

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """One call that the endpoint got."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]
    query: Mapping[str, str]


def of_json(content: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(json.dumps(content).encode(), status, headers=headers)


# --- replies ----------------------------------------------------------------------------------------------------------


def chat(text: str | None = None, *, finish_reason: str = "stop", **parts: Any) -> Reply:
    """A chat completion. `choice` and `top` add fields beside the message, everything else to the message."""
    choice, top = parts.pop("choice", {}), parts.pop("top", {})
    message = {"role": "assistant", "content": text, **parts}
    return of_json(
        {
            "id": f"chatcmpl-{next(_numbers)}",
            "object": "chat.completion",
            "created": 1,
            "model": "fake",
            "choices": [{"index": 0, "finish_reason": finish_reason, "message": message, **choice}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            **top,
        }
    )


def tool_call(name: str, arguments: str = "{}", call_id: str = "call_1") -> dict[str, Any]:
    """An element of a chat message's `tool_calls`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(text: str, *, finish_reason: str = "stop", **choice: Any) -> Reply:
    """An answer of `/v1/completions`."""
    return of_json(
        {
            "id": f"cmpl-{next(_numbers)}",
            "object": "text_completion",
            "created": 1,
            "model": "fake",
            "choices": [{"index": 0, "finish_reason": finish_reason, "text": text, **choice}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
    )


def response(*output: Any, **fields: Any) -> Reply:
    """An answer of `/v1/responses`: strings are assistant messages, dicts are items as they are."""
    items = [_message(part) if isinstance(part, str) else part for part in output]
    return of_json(
        {
            "id": f"resp_{next(_numbers)}",
            "object": "response",
            "created_at": 1,
            "model": "fake",
            "status": "completed",
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            **fields,
        }
    )


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{next(_numbers)}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


# --- faults -----------------------------------------------------------------------------------------------------------


def rate_limited(retry_after: str = "0.1") -> Reply:
    return of_json({"error": {"message": "slow down"}}, 429, **{"Retry-After": retry_after})


def failing(status: int = 500, message: str = "out of order") -> Reply:
    # Retry-After keeps tests from sitting out the pauses between attempts.
    return of_json({"error": {"message": message}}, status, **{"Retry-After": "0.1"})


def html_page() -> Reply:
    return Reply(b"<html><body>Welcome to the proxy</body></html>", content_type="text/html")


def cut_off(whole: Reply, share: float = 0.5) -> Reply:
    """`whole` without its end."""
    return Reply(whole.body[: int(len(whole.body) * share)], whole.status, whole.content_type, whole.headers)


def without_choices() -> Reply:
    return of_json({"id": "chatcmpl-0", "object": "chat.completion", "created": 1, "model": "fake", "choices": []})


# --- the endpoint -----------------------------------------------------------------------------------------------------


class FakeOpenAI:
    """The endpoint, running inside `async with`. `script` may be extended at any time."""

    def __init__(self, *script: Reply, default: Reply | None = None, tokens: list[int] | None = None) -> None:
        self.script = deque(script)
        self.default = default
        self.tokenize_reply = of_json({"tokens": tokens or [], "count": len(tokens or [])})
        self.received: list[Received] = []
        self._url = ""

    @property
    def url(self) -> str:
        return self._url

    @property
    def base_url(self) -> str:
        return f"{self._url}/v1"

    @property
    def bodies(self) -> list[Any]:
        """What was asked for replies, in order; calls to `/models` and `/tokenize` do not count."""
        return [call.body for call in self.received if not call.path.endswith(("/models", "/tokenize"))]

    def calls_to(self, path: str) -> list[Received]:
        return [call for call in self.received if call.path.endswith(path)]

    async def __aenter__(self) -> "FakeOpenAI":
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_global_aiohttp_client()  # its connections would keep the endpoint from closing
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.received.append(Received(request.method, request.path, body, request.headers, request.query))
        reply = self._reply_to(request.path)
        return web.Response(
            body=reply.body, status=reply.status, headers={**reply.headers, "Content-Type": reply.content_type}
        )

    def _reply_to(self, path: str) -> Reply:
        if path.endswith("/models"):
            return of_json({"object": "list", "data": [{"id": "fake", "object": "model"}]})
        if path.endswith("/tokenize"):
            return self.tokenize_reply
        if self.script:
            return self.script.popleft()
        return self.default or failing(404, f"the script has no reply for call {len(self.received)}")
