# SPDX-License-Identifier: Apache-2.0
"""The messages between the coordinator of a run and its workers, and their encoding.

Messages that are due at the same moment travel as one frame: the size of the JSON list of the messages, that list, and
the rows and results that belong to them as raw bytes, in the same order. Nothing is pickled. Each message begins
with its kind:

    to a worker          play     number, row                                run this row, under this number
                         cancel   number                                     stop running it
                         version  number, announcement                       a new policy version for its servers
    to the coordinator   scored   number, attempts, seconds, scores, line    `line` is the journal line, verbatim
                         failed   number, attempts, seconds, failure, terminal, persist, result
                         retry    number, failure                            it failed like this, and is retried
                         pausing  counts                                     who waits for another attempt, by cause
                         told     number, problems                           its servers have the version, except these
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import orjson

from nemo_gym._rollouts.journal import encode_line
from nemo_gym._rollouts.outcomes import Failed, Outcome, Row, Scored
from nemo_gym._transport.failures import Failure
from nemo_gym._util.frames import SIZE, FrameSplitter, build_frame

PLAY = "play"
CANCEL = "cancel"
VERSION = "version"
PING = "ping"
SCORED = "scored"
FAILED = "failed"
RETRY = "retry"
PAUSING = "pausing"
TOLD = "told"

Message = list[Any]
Send = Callable[[bytes], None]


class Outbox:
    """Gathers messages, and sends those of one event loop turn as one frame."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._messages = list[Message]()
        self._bodies = list[bytes]()

    def add(self, message: Message, *bodies: bytes) -> None:
        """Send `message` with the next frame; the sizes of its `bodies` are added to it."""
        if not self._messages:
            self._loop.call_soon(self._flush)
        message.extend(map(len, bodies))
        self._messages.append(message)
        self._bodies.extend(bodies)

    def _flush(self) -> None:
        messages = orjson.dumps(self._messages)
        body = b"".join(self._bodies)
        self._messages.clear()
        self._bodies.clear()
        self._send(build_frame(SIZE.pack(len(messages)), messages, body))


class FrameReader:
    """Parses a stream of frames."""

    def __init__(self) -> None:
        self._frames = FrameSplitter()

    def feed(self, data: bytes) -> Iterator[tuple[list[Message], memoryview]]:
        """Yield the messages and the raw bytes of every frame that `data` completes."""
        for content in self._frames.feed(data):
            end = SIZE.size + SIZE.unpack_from(content)[0]
            yield orjson.loads(content[SIZE.size : end]), content[end:]


# --- outcomes ---------------------------------------------------------------------------------------------------------


def add_outcome(outbox: Outbox, number: int, outcome: Outcome, strip: Callable[[Row], Row]) -> None:
    """Send what became of rollout `number`; `strip` returns the part of a result that is read outside the journal."""
    told: Message = [number, outcome.attempts, outcome.elapsed_s]
    if isinstance(outcome, Scored):
        outbox.add([SCORED, *told], encode_line(strip(outcome.result)), encode_line(outcome.result))
    else:
        # Few rollouts fail, and the coordinator builds their record.
        result = b""
        if outcome.result is not None:
            result = encode_line(outcome.result)
        outbox.add([FAILED, *told, asdict(outcome.failure), outcome.terminal, outcome.persist], result)


def read_outcome(message: Message, body: memoryview, row: Row) -> Outcome:
    """Return the outcome of `row` that `message` reports; `body` begins with the bytes that belong to it."""
    if message[0] == SCORED:
        _, _, attempts, elapsed_s, scores_size, line_size = message
        scores = orjson.loads(body[:scores_size])
        return Scored(row, scores, attempts, elapsed_s, bytes(body[scores_size : scores_size + line_size]))
    _, _, attempts, elapsed_s, failure, terminal, persist, size = message
    result = orjson.loads(body[:size]) if size else None
    return Failed(row, Failure(**failure), attempts, elapsed_s, result, terminal, persist)


def count_body_bytes(message: Message) -> int:
    """Return how many of its frame's raw bytes belong to `message`."""
    if message[0] == SCORED:
        return int(message[4] + message[5])
    return int(message[-1]) if message[0] in (PLAY, FAILED) else 0
