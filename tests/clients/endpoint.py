# SPDX-License-Identifier: Apache-2.0
"""A model's endpoint that speaks Responses and Chat Completions, and answers by what it is asked.

It does what the last user message says: `fail STATUS` fails, `think` sends reasoning, a request with tools gets calls
of them, one with a schema gets an object, an image gets a word about it. Everything else is repeated.
"""

import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from nemo_gym._servers.http_session import close_global_aiohttp_client

KEY = "sk-a-secret-of-the-endpoint"
CITY = {"city": "Paris", "people": 2100000}
ERRORS = {
    400: {
        "message": "This model's maximum context length is 8 tokens",
        "type": "invalid_request_error",
        "param": "messages",
    },
    401: {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error", "code": "invalid_api_key"},
    404: {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"},
    429: {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"},
}
_ids = itertools.count(1)


class Endpoint:
    """The endpoint, at `base_url` inside `serve_endpoint`."""

    def __init__(self) -> None:
        self.base_url = ""
        self.asked: list[dict[str, Any]] = []
        self._kept: dict[str, tuple[list[Any], dict[str, Any]]] = {}

    async def chat(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        messages = [message for message in body["messages"] if message["role"] != "system"]
        if failed := _fail(_find_text(messages)):
            return failed
        text, calls, thought = _decide(body, messages, body.get("response_format"))
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            functions = [{"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in calls]
            message["tool_calls"] = [
                {"id": f"call_{next(_ids)}", "type": "function", "function": function} for function in functions
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
        return web.json_response(
            {
                "id": f"chatcmpl-{next(_ids)}",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [choice],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            }
        )

    async def respond(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if previous := body.get("previous_response_id"):
            items = [*self._kept[previous][0], *self._kept[previous][1]["output"], *items]
        if failed := _fail(_find_text(items)):
            return failed
        text, calls, thought = _decide(body, items, (body.get("text") or {}).get("format"))
        output: list[dict[str, Any]] = []
        if thought:
            summary = [{"type": "summary_text", "text": thought}]
            output.append({"type": "reasoning", "id": f"rs_{next(_ids)}", "summary": summary})
        if text is not None:
            content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
            known = {"type": "message", "role": "assistant", "status": "completed"}
            output.append({**known, "id": f"msg_{next(_ids)}", "content": content})
        for call in calls:
            ids = {"id": f"fc_{next(_ids)}", "call_id": f"call_{next(_ids)}", "status": "completed"}
            arguments = json.dumps(call["arguments"])
            output.append({"type": "function_call", **ids, "name": call["name"], "arguments": arguments})
        reply = {
            "id": f"resp_{next(_ids)}",
            "object": "response",
            "created_at": 1,
            "model": body["model"],
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": body.get("tools") or [],
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        }
        self._kept[reply["id"]] = (items, reply)
        return web.json_response(reply)

    async def retrieve(self, request: web.Request) -> web.Response:
        kept = self._kept.get(request.match_info["id"])
        return web.json_response(kept[1]) if kept else _fail("fail 404") or web.Response()

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        words = _find_text(body["messages"]).split()
        return web.json_response({"tokens": list(range(len(words))), "count": len(words)})

    async def _read(self, request: web.Request) -> Any:
        body = await request.json()
        self.asked.append(body)
        return body


def _fail(text: str) -> web.Response | None:
    wanted = re.search(r"fail (\d+)", text)
    if wanted is None:
        return None
    status = int(wanted[1])
    error = ERRORS.get(status, {"message": "out of order", "type": "server_error"})
    # Kept short, so that nobody sits out the pauses between attempts.
    return web.json_response({"error": error}, status=status, headers={"Retry-After": "0.1"})


def _find_text(items: list[Any]) -> str:
    """Return the text of the last message of a user."""
    content = next((item["content"] for item in reversed(items) if item.get("role") == "user"), "")
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _decide(body: Any, items: list[Any], schema: Any) -> tuple[str | None, list[dict[str, Any]], str | None]:
    """Return the text, the tool calls and the thought of the reply."""
    text = _find_text(items)
    results = [item for item in items if item.get("role") == "tool" or item.get("type") == "function_call_output"]
    tools = [tool.get("function", tool) for tool in body.get("tools") or []]
    if tools and not results:
        forced = [tool for tool in tools if "people" in str(tool["parameters"])]
        if forced:
            return None, [{"name": forced[0]["name"], "arguments": CITY}], None
        cities = ("Oslo", "Rome") if "both" in text else ("Oslo",)
        return None, [{"name": tools[0]["name"], "arguments": {"city": city}} for city in cities], None
    if results:
        told = [item.get("output") or item["content"] for item in results]
        texts = [one if isinstance(one, str) else "".join(part["text"] for part in one) for one in told]
        return "it is " + " and ".join(texts), [], None
    if schema and schema.get("type") == "json_schema":
        return json.dumps(CITY), [], None
    if "image" in json.dumps(items).replace(text, ""):
        return "a picture", [], None
    users = [item for item in items if item.get("role") == "user"]
    said = f"turn {len(users)}: {text}"
    return said, [], "let me see" if "think" in text else None


@asynccontextmanager
async def serve_endpoint() -> AsyncIterator[Endpoint]:
    """Run the endpoint on a free port."""
    endpoint = Endpoint()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    app.router.add_post("/v1/responses", endpoint.respond)
    app.router.add_get("/v1/responses/{id}", endpoint.retrieve)
    app.router.add_post("/tokenize", endpoint.tokenize)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    endpoint.base_url = f"http://{host}:{port}/v1"
    try:
        yield endpoint
    finally:
        await close_global_aiohttp_client()  # its connections would keep the endpoint from closing
        await runner.cleanup()
