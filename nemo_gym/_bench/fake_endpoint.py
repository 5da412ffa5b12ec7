# SPDX-License-Identifier: Apache-2.0
"""A fake OpenAI endpoint that answers at once, or as late and as badly as it is told to: Responses, Chat Completions.

It calls the first tool that a request offers until it has seen enough results, then gives a fixed answer. Everything
about it can be changed while it runs (`POST /config`). It does not stream, and expects one request at a time per
connection, as HTTP clients send them.

    python -m nemo_gym._bench.fake_endpoint --port 8080 \\
        --settings '{"latency_ms": 500, "faults": {"429": 0.02, "reset": 0.01}}'
"""

import argparse
import asyncio
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
from dataclasses import asdict, dataclass, fields, replace
from http import HTTPStatus
from math import log
from pathlib import Path
from typing import Any

import httptools
import orjson
import uvloop

from nemo_gym._bench.fake_replies import Settings, write_chat, write_response

_JSON_HEAD = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
_CUT_OFF = b'{"id":"resp_0","object":"response","output":[{"type":'
_SAYS_NOTHING = {"id": "resp_0", "created_at": 0, "model": "m", "status": "completed", "output": [], "choices": []}
_OPTIONS = {"object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
_BACKLOG = 16_384


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
        self.open_calls = self.most_open_calls = 0
        self.first_call_at: float | None = None
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
                return Answer(reply(self._stats()))
            case b"DELETE", "/stats":
                self.counts.clear()
                self.most_open_calls = self.open_calls
                self.first_call_at = None
                return Answer(reply({}))
            case b"GET", "/health":
                return Answer(reply("ok"))
        return Answer(error(404, f"there is no {method.decode()} {path} here"))

    def wait_began(self) -> None:
        """One more caller waits for its answer."""
        self.open_calls += 1
        self.most_open_calls = max(self.most_open_calls, self.open_calls)

    def wait_ended(self) -> None:
        """A caller has its answer, or has gone."""
        self.open_calls -= 1

    def _stats(self) -> dict[str, Any]:
        return {
            **self.counts,
            "cpu_s": time.process_time(),
            "waited_s": _waited_s(),
            "open_calls": self.open_calls,
            "most_open_calls": self.most_open_calls,
            "first_call_at": self.first_call_at,
        }

    def _configure(self, body: bytes) -> Answer:
        given = orjson.loads(body)
        if unknown := sorted(given.keys() - {f.name for f in fields(Settings)}):
            return Answer(error(400, f"unknown settings: {', '.join(unknown)}"))
        self.use(replace(self._settings, **given))
        return Answer(reply(asdict(self._settings)))

    def _model_call(self, dialect: str, body: bytes) -> Answer:
        self.counts[dialect] += 1
        if self.first_call_at is None:
            self.first_call_at = time.time()
        delay_s = self._latency_s()
        fault = self._fault(body)
        if fault is not None:
            self.counts[f"fault {fault}"] += 1
            return _faulty(fault, delay_s)
        write = write_response if dialect == "responses" else write_chat
        try:
            return Answer(reply(write(orjson.loads(body), self._settings, next(self._ids))), delay_s)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as problem:
            return Answer(error(400, f"not a request of this API: {problem!r}"))

    def _latency_s(self) -> float:
        latency_ms = self._settings.latency_ms
        sigma = self._settings.latency_sigma
        if latency_ms and sigma:
            return self._dice.lognormvariate(log(latency_ms), sigma) / 1000
        return latency_ms / 1000

    def _fault(self, body: bytes) -> str | None:
        for text, kind in self._settings.marked_faults.items():
            if text.encode() in body:
                return kind
        if not self._settings.faults:
            return None
        drawn = self._dice.random()
        for kind, probability in self._settings.faults.items():
            drawn -= probability
            if drawn < 0:
                return kind
        return None


def _waited_s() -> float:
    """Return how long this process was ready to answer but did not run; 0 where the kernel does not count it."""
    try:
        return 1e-9 * int(Path("/proc/self/schedstat").read_text().split()[1])
    except FileNotFoundError:
        return 0.0


def _faulty(kind: str, delay_s: float) -> Answer:
    match kind:
        case "reset":
            return Answer(None, delay_s)
        case "hang":
            return Answer(None, never=True)
        case "empty":
            return Answer(reply({**_SAYS_NOTHING, **_OPTIONS}), delay_s)
        case "garbage":
            return Answer(raw_reply(_CUT_OFF), delay_s)
        case status:
            # So that whoever tests with it does not sit out pauses.
            pause = b"retry-after: 0\r\n" if status in ("429", "500", "502", "503", "504") else b""
            return Answer(error(int(status), "injected fault", pause), delay_s)


def error(status: int, message: str, headers: bytes = b"") -> bytes:
    """An error the way OpenAI words it."""
    return reply({"error": {"message": message, "type": "fake", "param": None, "code": str(status)}}, status, headers)


# --- the wire ---------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = b""
        self._is_waited_for = False

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
        self._url = b""
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        path = self._url.partition(b"?")[0].decode()
        answer = self._endpoint.answer(self._parser.get_method(), path, self._body)
        if not answer.never and not answer.delay_s:
            self._send(answer.payload)
            return
        self._is_waited_for = True
        self._endpoint.wait_began()
        if not answer.never:
            self._loop.call_later(answer.delay_s, self._send, answer.payload)

    def connection_lost(self, error: Exception | None) -> None:
        self._end_wait()

    def _end_wait(self) -> None:
        if self._is_waited_for:
            self._is_waited_for = False
            self._endpoint.wait_ended()

    def _send(self, payload: bytes | None) -> None:
        self._end_wait()
        if payload is None:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.write(payload)


async def serve(sock: socket.socket, settings: Settings) -> None:
    """Answer on `sock` until SIGINT or SIGTERM."""
    endpoint = Endpoint(settings)
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    server = await loop.create_server(lambda: Connection(endpoint), sock=sock, backlog=_BACKLOG)
    async with server:
        await done.wait()


@contextmanager
def running(settings: Settings | None = None) -> Iterator[str]:
    """The base URL of an endpoint in a process of its own, which ends with the context or with this process."""
    text = orjson.dumps(asdict(settings or Settings())).decode()
    argv = [sys.executable, "-m", "nemo_gym._bench.fake_endpoint", "--settings", text, "--until-stdin-closes"]
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
