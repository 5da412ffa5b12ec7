# SPDX-License-Identifier: Apache-2.0
"""The worker's side of a run with workers: run the rows that the coordinator sends, and report how each ended.

A worker only decides how to run one row. The coordinator decides how many run at once, what is recorded and when the
run ends.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import orjson

from nemo_gym._rollouts.dispatch import make_cancelled
from nemo_gym._rollouts.outcomes import Failed, Play, Row
from nemo_gym._rollouts.play import name_boundary
from nemo_gym._rollouts.workers.worker_messages import (
    PAUSING,
    PING,
    PLAY,
    RETRY,
    TOLD,
    VERSION,
    FrameReader,
    Outbox,
    Send,
    add_outcome,
    count_body_bytes,
)
from nemo_gym._transport.failures import Failure, build_failure
from nemo_gym._transport.retries import RETRIES

_PAUSES_EVERY_S = 0.25


class WorkerDesk:
    """Receives the coordinator's messages and answers them."""

    def __init__(
        self,
        play: Play,
        send: Send,
        strip: Callable[[Row], Row],
        tell_servers: Callable[[dict[str, Any]], Awaitable[dict[str, str]]] | None = None,
    ) -> None:
        """`send` takes frames for the coordinator. `strip`: see `add_outcome`.

        `tell_servers` announces a policy version to the worker's servers, and returns those that did not accept it.
        """
        self._play = play
        self._strip = strip
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(send)
        self._reader = FrameReader()
        self._tell_servers = tell_servers
        self._telling = set[asyncio.Task[None]]()
        self._running = dict[int, asyncio.Task[None]]()
        self._pauses_told = dict[str, int]()
        self._next_pauses: asyncio.TimerHandle | None = None

    def take(self, data: bytes) -> None:
        """Handle bytes from the coordinator."""
        for messages, body in self._reader.feed(data):
            at = 0
            for message in messages:
                if message[0] == PLAY:
                    row = orjson.loads(body[at : at + message[2]])
                    task = self._loop.create_task(self._play_and_report(message[1], row))
                    self._running[message[1]] = task
                elif message[0] == PING:
                    self._outbox.add([TOLD, message[1], {}])
                elif message[0] == VERSION:
                    telling = self._loop.create_task(self._announce(message[1], message[2]))
                    self._telling.add(telling)
                    telling.add_done_callback(self._telling.discard)
                elif (running := self._running.get(message[1])) is not None:
                    running.cancel()
                at += count_body_bytes(message)

    async def close(self) -> None:
        """Stop playing."""
        if self._next_pauses is not None:
            self._next_pauses.cancel()
        tasks = (*self._running.values(), *self._telling)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play_and_report(self, number: int, row: Row) -> None:
        started = time.monotonic()
        try:
            outcome = await self._play(row, partial(self._report_retry, number))
        except asyncio.CancelledError:
            outcome = Failed(row, make_cancelled(row), 1, time.monotonic() - started)
        except Exception as error:
            failure = build_failure(error, "agent", name_boundary(row))
            outcome = Failed(row, failure, 1, time.monotonic() - started)
        finally:
            del self._running[number]
        add_outcome(self._outbox, number, outcome, self._strip)

    async def _announce(self, number: int, announced: dict[str, Any]) -> None:
        problems = dict[str, str]()
        if self._tell_servers is not None:
            problems = await self._tell_servers(announced)
        self._outbox.add([TOLD, number, problems])

    def _report_retry(self, number: int, failure: Failure) -> None:
        self._outbox.add([RETRY, number, asdict(failure)])
        if self._next_pauses is None:
            self._next_pauses = self._loop.call_later(0.0, self._report_pauses)

    def _report_pauses(self) -> None:
        """Report who is waiting for another attempt, and repeat it periodically until nobody is."""
        self._next_pauses = None
        pauses = RETRIES.under_way()
        if pauses != self._pauses_told:
            self._outbox.add([PAUSING, pauses])
            self._pauses_told = pauses
        if pauses:
            self._next_pauses = self._loop.call_later(_PAUSES_EVERY_S, self._report_pauses)
