# SPDX-License-Identifier: Apache-2.0
"""A fake OpenAI endpoint that answers at once, or as late and as badly as it is told to: Responses, Chat Completions.

It calls the first tool that a request offers until it has seen enough results, then gives a fixed answer. Everything
about it can be changed while it runs (`POST /config`). It does not stream, and expects one request at a time per
connection, as HTTP clients send them.

    python -m perf.fake_endpoint --port 8080 --settings '{"latency_ms": 500, "faults": {"429": 0.02, "reset": 0.01}}'
"""

import argparse
import asyncio
import functools
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from http import HTTPStatus
from math import log
from typing import Any

import httptools
import orjson
import uvloop

_JSON_HEAD = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
_CUT_OFF = b'{"id":"resp_0","object":"response","output":[{"type":'
_BACKLOG = 16_384


@dataclass(frozen=True)
class Settings:
    """How the endpoint behaves."""

    model: str = "fake"
    answer: str = "It is cold. \\boxed{A}"
    """What it says in the end."""
    tool_rounds: int = 1
    """How many tool results it asks for before it answers, if tools are offered."""
    latency_ms: float = 0.0
    """How long an answer takes; the median if `latency_sigma` spreads it."""
    latency_sigma: float = 0.0
    """Spread of a log-normal latency; 0: always the same."""
    faults: dict[str, float] = field(default_factory=dict)
    """Probability of each fault: an HTTP status, `reset` (no reply), `hang` (never one), `garbage` (JSON cut off)."""
    seed: int = 0
    """Of the dice that choose latencies and faults."""


@dataclass(frozen=True)
class Answer:
    """What goes back: bytes, or None for a connection that breaks; `never` for one that stays silent."""

    payload: bytes | None
    delay_s: float = 0.0
    never: bool = False


def reply(content: Any, status: int = 200, headers: bytes = b"") -> bytes:
    """A whole HTTP reply with `content` as JSON."""
    return raw_reply(orjson.dumps(content), status, headers)


def raw_reply(body: bytes, status: int = 200, headers: bytes = b"") -> bytes:
    """A whole HTTP reply."""
    return _JSON_HEAD % (status, HTTPStatus(status).phrase.encode(), headers, len(body)) + body


class Endpoint:
    """What all connections share: settings, counters, and how each path is answered."""

    def __init__(self, settings: Settings) -> None:
        self._ids = itertools.count(1)
        self.counts: Counter[str] = Counter()
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Behave like this from here on."""
        self._settings = settings
        self._dice = random.Random(settings.seed)

    def answer(self, method: bytes, path: str, body: bytes) -> Answer:
        """The answer to one request."""
        if method == b"POST" and path.endswith("/responses"):
            return self._model_call("responses", body)
        if method == b"POST" and path.endswith("/chat/completions"):
            return self._model_call("chat", body)
        match method, path:
            case b"GET", "/v1/models":
                model = {"id": self._settings.model, "object": "model", "created": 0, "owned_by": "perf"}
                return Answer(reply({"object": "list", "data": [model]}))
            case b"GET", "/config":
                return Answer(reply(asdict(self._settings)))
            case b"POST", "/config":
                return self._configure(body)
            case b"GET", "/stats":
                return Answer(reply({**self.counts, "cpu_s": time.process_time()}))
            case b"DELETE", "/stats":
                self.counts.clear()
                return Answer(reply({}))
            case b"GET", "/health":
                return Answer(reply("ok"))
        return Answer(error(404, f"there is no {method.decode()} {path} here"))

    def _configure(self, body: bytes) -> Answer:
        given = orjson.loads(body)
        if unknown := sorted(given.keys() - {f.name for f in fields(Settings)}):
            return Answer(error(400, f"unknown settings: {', '.join(unknown)}"))
        self.use(replace(self._settings, **given))
        return Answer(reply(asdict(self._settings)))

    def _model_call(self, dialect: str, body: bytes) -> Answer:
        self.counts[dialect] += 1
        delay_s, fault = self._latency_s(), self._fault()
        if fault is not None:
            self.counts[f"fault {fault}"] += 1
            return _faulty(fault, delay_s)
        write = write_response if dialect == "responses" else write_chat
        try:
            return Answer(reply(write(orjson.loads(body), self._settings, next(self._ids))), delay_s)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as problem:
            return Answer(error(400, f"not a request of this API: {problem!r}"))

    def _latency_s(self) -> float:
        latency_ms, sigma = self._settings.latency_ms, self._settings.latency_sigma
        if latency_ms and sigma:
            return self._dice.lognormvariate(log(latency_ms), sigma) / 1000
        return latency_ms / 1000

    def _fault(self) -> str | None:
        if not self._settings.faults:
            return None
        drawn = self._dice.random()
        for kind, probability in self._settings.faults.items():
            drawn -= probability
            if drawn < 0:
                return kind
        return None


def _faulty(kind: str, delay_s: float) -> Answer:
    match kind:
        case "reset":
            return Answer(None, delay_s)
        case "hang":
            return Answer(None, never=True)
        case "garbage":
            return Answer(raw_reply(_CUT_OFF), delay_s)
        case status:
            pause = b"retry-after: 0\r\n" if status in ("429", "503") else b""
            return Answer(error(int(status), "injected fault", pause), delay_s)


def error(status: int, message: str, headers: bytes = b"") -> bytes:
    """An error the way OpenAI words it."""
    return reply({"error": {"message": message, "type": "fake", "param": None, "code": str(status)}}, status, headers)


# --- the two dialects -------------------------------------------------------------------------------------------------


def write_response(request: dict[str, Any], settings: Settings, number: int) -> dict[str, Any]:
    """A Responses object."""
    tools, items = request.get("tools") or [], request["input"]
    results = sum(item.get("type") == "function_call_output" for item in items) if isinstance(items, list) else 0
    if tools and results < settings.tool_rounds:
        name, arguments = call_of(tools[0])
        call = {"call_id": f"call_{number}", "name": name, "arguments": arguments}
        output = {"type": "function_call", "id": f"fc_{number}", **call, "status": "completed"}
    else:
        text = {"type": "output_text", "text": settings.answer, "annotations": []}
        message: dict[str, Any] = {"role": "assistant", "status": "completed", "content": [text]}
        output = {"type": "message", "id": f"msg_{number}", **message}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": settings.model,
        "output": [output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": tools,
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 120,
        },
    }


def write_chat(request: dict[str, Any], settings: Settings, number: int) -> dict[str, Any]:
    """A chat completion."""
    tools = request.get("tools") or []
    results = sum(message["role"] == "tool" for message in request["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    is_call = bool(tools) and results < settings.tool_rounds
    if is_call:
        name, arguments = call_of(tools[0]["function"])
        function = {"name": name, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    else:
        message["content"] = settings.answer
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if is_call else "stop", "logprobs": None}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": settings.model,
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def call_of(tool: dict[str, Any]) -> tuple[str, str]:
    """The name of `tool` and arguments, as JSON text, that its schema accepts."""
    return tool["name"], _arguments_for(orjson.dumps(tool.get("parameters") or {}))


@functools.lru_cache(maxsize=10_000)
def _arguments_for(schema: bytes) -> str:
    return orjson.dumps(example_of(orjson.loads(schema))).decode()


def example_of(schema: Any) -> Any:
    """A value that a JSON schema of the usual kind accepts; the same each time."""
    match schema:
        case {"const": value} | {"default": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]} | {"allOf": [first, *_]}:
            return example_of(first)
        case {"type": [first, *_]}:
            return example_of({**schema, "type": first})
        case {"type": "object"} | {"properties": _}:
            properties = schema.get("properties", {})
            return {name: example_of(properties.get(name, {})) for name in schema.get("required", properties)}
        case {"type": "array"}:
            return [example_of(schema.get("items", {}))] * max(1, schema.get("minItems", 1))
        case {"type": "integer" | "number"}:
            return schema.get("minimum", 1)
        case {"type": "boolean"}:
            return True
        case {"type": "null"}:
            return None
    return "San Francisco"


# --- the wire ---------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._loop = endpoint, asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._body = b"", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # uvloop's transports are none of asyncio's classes
        self._endpoint.counts["connections"] += 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            self._transport.write(error(400, f"not HTTP: {problem}"))
            self._transport.close()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        path = self._url.partition(b"?")[0].decode()
        answer = self._endpoint.answer(self._parser.get_method(), path, self._body)
        if answer.never:
            return
        if answer.delay_s:
            self._loop.call_later(answer.delay_s, self._send, answer.payload)
        else:
            self._send(answer.payload)

    def _send(self, payload: bytes | None) -> None:
        if payload is None:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.write(payload)


async def serve(sock: socket.socket, settings: Settings) -> None:
    """Answer on `sock` until SIGINT or SIGTERM."""
    endpoint, done, loop = Endpoint(settings), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    server = await loop.create_server(lambda: Connection(endpoint), sock=sock, backlog=_BACKLOG)
    async with server:
        await done.wait()


@contextmanager
def running(settings: Settings | None = None) -> Iterator[str]:
    """The base URL of an endpoint in a process of its own, which ends with the context or with this process."""
    text = orjson.dumps(asdict(settings or Settings())).decode()
    argv = [sys.executable, "-m", "perf.fake_endpoint", "--settings", text, "--until-stdin-closes"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the fake endpoint ended with status {process.wait()} before it listened")
            yield f"http://127.0.0.1:{orjson.loads(line)['port']}"
        finally:
            process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: any free one; it is printed as JSON")
    parser.add_argument("--settings", type=orjson.loads, default={}, help="JSON object, as for POST /config")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the process that started it does")
    given = parser.parse_args()
    sock = socket.create_server(("127.0.0.1", given.port), backlog=_BACKLOG)
    print(orjson.dumps({"port": sock.getsockname()[1]}).decode(), flush=True)
    if given.until_stdin_closes:
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvloop.run(serve(sock, Settings(**given.settings)))


if __name__ == "__main__":
    main()
