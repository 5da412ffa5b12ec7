# SPDX-License-Identifier: Apache-2.0
"""Run rollouts in other processes: each row goes to the worker with the fewest in progress.

Nothing is assigned in advance, so a slow worker keeps nobody waiting. A worker that dies is replaced, and others run
its unfinished rollouts again. A row that has killed several workers fails; suspect rows run one at a time, so that
others do not fail with them. Whether workers are processes or Ray actors is not known here.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import orjson

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.outcomes import Failed, OnRetry, Outcome, Row
from nemo_gym._rollouts.play import name_boundary
from nemo_gym._rollouts.workers.worker_messages import (
    CANCEL,
    FAILED,
    PAUSING,
    PING,
    PLAY,
    RETRY,
    SCORED,
    TOLD,
    VERSION,
    FrameReader,
    Message,
    Outbox,
    count_body_bytes,
    read_outcome,
)
from nemo_gym._transport.failures import Failure
from nemo_gym._transport.retries import RETRIES

# A row fails once this many workers have died while running it; at one fewer, it is suspect.
_MOST_LOSSES = 3
# How many workers may die: this many per worker, plus one for every so many finished rollouts.
_DEATHS_PER_WORKER = 4
_ROLLOUTS_PER_DEATH = 200
_TELL_TIMEOUT_S = 60.0
# Longer than any server should block the event loop of its worker.
_MAX_SILENCE_S = 300.0
# How many replacements in a row may fail to start.
_MOST_FAILED_STARTS = 3


class Worker(Protocol):
    """A ready worker, as the coordinator sees it."""

    def send(self, frame: bytes) -> None:
        """Send a frame; drop it if the worker has died."""

    async def wait_for_end(self) -> str:
        """Return how it ended, in words, once everything it sent has been delivered."""

    async def stop(self) -> None:
        """End it for good."""


StartWorker = Callable[[str, Callable[[bytes], None]], Awaitable[Worker]]
"""Starts the named worker and returns it once it is ready; the function receives what it sends."""


class _WorkerLost(Exception):
    """The worker died while it was running the row."""


@dataclass
class _BusyWorker:
    """One worker, and what it has in progress."""

    name: str
    worker: Worker
    outbox: Outbox
    under_way: dict[int, "_Assignment"] = field(default_factory=dict)
    telling: dict[int, "asyncio.Future[dict[str, str]]"] = field(default_factory=dict)
    """Announcements and pings that it has not answered yet."""
    silence: str | None = None
    """Why it was ended, if it did not answer."""


@dataclass(frozen=True)
class _Assignment:
    """A row that a worker runs."""

    row: Row
    on_retry: OnRetry | None
    outcome: "asyncio.Future[Outcome]"


class WorkerPool:
    """The workers of a run. An async context manager: starts them together on entry and stops them on exit."""

    def __init__(
        self,
        start: StartWorker,
        count: int,
        control: RunControl,
        notice: Callable[[str], None] = lambda text: None,
        *,
        max_silence_s: float = _MAX_SILENCE_S,
    ) -> None:
        """`notice` is told about every worker that dies; if too many do, `control` gives the run up.

        A worker that does not answer for `max_silence_s` counts as dead.
        """
        self._max_silence_s = max_silence_s
        self._start = start
        self._count = count
        self._control = control
        self._notice = notice
        self._places = list[_BusyWorker]()
        self._has_place = asyncio.Event()
        self._suspects_turn = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._ended = self._deaths = 0
        self._announced: dict[str, Any] | None = None
        self._tasks = set[asyncio.Task[None]]()
        self._is_closing = False

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop)
            starts = [asyncio.create_task(self._add_worker()) for _ in range(self._count)]
            try:
                await asyncio.gather(*starts)
            finally:
                for task in starts:
                    task.cancel()
                await asyncio.gather(*starts, return_exceptions=True)
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    @property
    def names(self) -> list[str]:
        """Return the names of the live workers."""
        return [place.name for place in self._places]

    async def play(self, row: Row, on_retry: OnRetry | None = None) -> Outcome:
        """Have a worker run `row`, and another one if that worker dies; `on_retry` is told why it is retried."""
        started = time.monotonic()
        losses = 0
        while True:
            try:
                if losses < _MOST_LOSSES - 1:
                    return await self._play_once(row, on_retry)
                async with self._suspects_turn:
                    return await self._play_once(row, on_retry)
            except _WorkerLost as lost:
                losses += 1
                if losses >= _MOST_LOSSES:
                    message = f"{losses} workers died while running it; the last one {lost}"
                    failure = Failure("worker_died", name_boundary(row), True, message)
                    return Failed(row, failure, losses, time.monotonic() - started)

    async def announce(self, announced: dict[str, Any]) -> dict[str, str]:
        """Announce a policy version to the servers of all current and future workers; return who did not accept it.

        A worker that dies meanwhile has nobody left to tell.
        """
        self._announced = announced
        told = await asyncio.gather(*(self._tell(place, announced) for place in list(self._places)))
        return {name: problem for problems in told for name, problem in problems.items()}

    async def _tell(self, place: _BusyWorker, announced: dict[str, Any]) -> dict[str, str]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        place.telling[number] = answer
        place.outbox.add([VERSION, number, announced])
        try:
            async with asyncio.timeout(_TELL_TIMEOUT_S):
                problems = await answer
        except TimeoutError:
            problems = {"every server": f"the worker did not answer within {_TELL_TIMEOUT_S:g} s"}
        finally:
            place.telling.pop(number, None)
        return {f"{name} of {place.name}": problem for name, problem in problems.items()}

    async def _play_once(self, row: Row, on_retry: OnRetry | None) -> Outcome:
        while not self._places:
            # A worker is being started, or the run is being given up, which cancels this.
            await self._has_place.wait()
        place = min(self._places, key=lambda one: len(one.under_way))
        number = next(self._numbers)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        place.under_way[number] = _Assignment(row, on_retry, outcome)
        place.outbox.add([PLAY, number], orjson.dumps(row))
        try:
            return await outcome
        finally:
            if place.under_way.pop(number, None) is not None:
                place.outbox.add([CANCEL, number])

    # --- workers ------------------------------------------------------------------------------------------------------

    async def _add_worker(self) -> None:
        name = f"worker-{next(self._names)}"
        under_way = dict[int, _Assignment]()
        telling = dict[int, asyncio.Future[dict[str, str]]]()
        reader = FrameReader()

        def take(data: bytes) -> None:
            for messages, body in reader.feed(data):
                at = 0
                for message in messages:
                    if message[0] == TOLD:
                        if (answer := telling.get(message[1])) is not None and not answer.done():
                            answer.set_result(message[2])
                    else:
                        self._handle_message(name, under_way, message, body[at:])
                    at += count_body_bytes(message)

        worker = await self._start(name, take)
        place = _BusyWorker(name, worker, Outbox(worker.send), under_way, telling)
        announced: dict[str, Any] | None = None
        while self._announced is not announced and (announced := self._announced) is not None:
            # Before any row is sent: its rollouts begin with the version in force.
            for server, problem in (await self._tell(place, announced)).items():
                self._notice(f"{server} does not know policy version {announced.get('version')}: {problem}")
        self._places.append(place)
        self._has_place.set()
        self._run(self._watch(place))

    def _handle_message(self, name: str, under_way: dict[int, _Assignment], message: Message, body: memoryview) -> None:
        kind = message[0]
        told = message[1]
        if kind in (SCORED, FAILED):
            play = under_way.pop(told, None)
            if play is not None and not play.outcome.done():  # otherwise it was cancelled meanwhile
                self._ended += 1
                play.outcome.set_result(read_outcome(message, body, play.row))
        elif kind == RETRY:
            play = under_way.get(told)
            if play is not None and play.on_retry is not None:
                play.on_retry(Failure(**message[2]))
        elif kind == PAUSING:
            RETRIES.note_elsewhere(name, told)

    async def _watch(self, place: _BusyWorker) -> None:
        """Wait for a worker to end, and handle it if nobody asked for it."""
        pinging = asyncio.create_task(self._ping(place))
        try:
            how = await place.worker.wait_for_end()
        finally:
            pinging.cancel()
        if self._is_closing:
            return
        how = place.silence or how
        self._places.remove(place)
        RETRIES.note_elsewhere(place.name, {})
        if not self._places:
            self._has_place.clear()
        lost = [play.outcome for play in place.under_way.values() if not play.outcome.done()]
        place.under_way.clear()
        for outcome in lost:
            outcome.set_exception(_WorkerLost(how))
        for answer in place.telling.values():
            if not answer.done():
                answer.set_result({})
        self._run(place.worker.stop())
        self._deaths += 1
        allowed = _DEATHS_PER_WORKER * self._count + self._ended // _ROLLOUTS_PER_DEATH
        if self._deaths > allowed:
            self._control.abort(
                f"{self._deaths} workers have died in this run; the last one, {place.name}, {how}\n"
                "hint: if memory is short, use fewer workers (`--workers`) or rollouts at once (`--concurrency`); "
                "then run the same command again with `--resume`"
            )
            return
        self._notice(f"{place.name} {how}\nits unfinished rollouts ({len(lost)}) will run again; starting another one")
        for failed in range(1, _MOST_FAILED_STARTS + 1):
            try:
                await self._add_worker()
                return
            except Exception as error:
                if failed == _MOST_FAILED_STARTS:
                    self._control.abort(f"a worker has died, and no other could be started in its place.\n{error}")
                else:
                    self._notice(f"a worker could not be started in its place, so another one is: {error}")

    async def _ping(self, place: _BusyWorker) -> None:
        """Ask a worker for a sign of life again and again; end it if none comes, as when it was stopped by a signal."""
        while True:
            await asyncio.sleep(self._max_silence_s / 2)
            number = next(self._numbers)
            answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
            place.telling[number] = answer
            place.outbox.add([PING, number])
            await asyncio.wait({answer}, timeout=self._max_silence_s)
            place.telling.pop(number, None)
            if not answer.done():
                place.silence = f"did not answer for {self._max_silence_s:g} s, and was ended"
                await place.worker.stop()
                return

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self) -> None:
        self._is_closing = True
        await asyncio.gather(*(place.worker.stop() for place in self._places))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for place in self._places:
            RETRIES.note_elsewhere(place.name, {})
            for answer in place.telling.values():
                if not answer.done():
                    answer.set_result({})
