# SPDX-License-Identifier: Apache-2.0
"""Worker processes of any kind: lend a bounded number of them, each to one caller at a time, and talk to them.

A message is eight bytes of length, eight bytes of number, then the content, over a stream socket. An answer has the
number of its question, so that no other is taken for it: a worker may fork, or speak without being asked. The other
side is in scripts that run on their own (`cpu_template`, `inside`).
"""

import asyncio
import contextlib
import secrets
import socket
import struct
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from nemo_gym.errors import GymError, RolloutFailure

MAX_IDLE_S = 300.0
_LENGTH = struct.Struct(">Q")
_NUMBER_BYTES = 8
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_READ_BYTES = 2**13


class PoolFull(GymError):
    """Too many calls are waiting already, so another one is refused."""

    def __init__(self, what: str, max_queue: int) -> None:
        super().__init__(what, max_queue)
        self.what = what
        self.max_queue = max_queue

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.max_queue} calls are waiting for a worker already.\n"
            "hint: send fewer at a time, or allow more workers or a longer queue"
        )


class PoolClosed(GymError):
    """The pool was closed before or during its use."""


class WorkerDied(GymError):
    """A worker process ended without an answer: it crashed, was killed, or ran out of memory."""


class SandboxUnavailable(GymError):
    """No sandbox for untrusted code can be started on this machine."""


class SandboxLost(RolloutFailure):
    """Something outside ended the sandboxes of a piece of code, so nothing is known about the code."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            "sandbox_lost",
            f"model-written code could not be run to its end: {cause}.\n"
            "hint: see what ends processes on this machine (the kernel log says if memory ran out), let fewer programs "
            "run at a time, and play the rollout again with `--resume`",
            True,
        )
        self.args = (cause,)


class LentWorker(Protocol):
    """A worker that `Slots` can lend."""

    @property
    def is_usable(self) -> bool:
        """Whether it may be lent again."""

    def end(self) -> None:
        """Kill it and release all it holds; idempotent."""


W = TypeVar("W", bound=LentWorker)


class Slots(Generic[W]):
    """Workers that start when first needed, are replaced when no longer usable, and end when long idle.

    The object belongs to the event loop that first uses it.
    """

    def __init__(self, what: str, start: Callable[[], Awaitable[W]], *, size: int, max_queue: int) -> None:
        if size < 1 or max_queue < 0:
            raise ValueError(f"{what}: needs at least one worker and no negative queue, not {size} and {max_queue}")
        self._what = what
        self._start = start
        self._size = size
        self._max_queue = max_queue
        self._free = asyncio.Semaphore(size)
        self._waiting = 0
        self._idle: list[tuple[float, W]] = []
        """Idle workers with the time since when they are idle, which grows from first to last."""
        self._has_timer = False
        self._lent: set[W] = set()
        self._is_closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[W]:
        """Lend a worker to the caller alone; start one if none is idle."""
        await self._wait_for_turn()
        try:
            worker = self._pop_idle() or await self._start_worker()
            self._lent.add(worker)
            try:
                yield worker
            finally:
                self._take_back(worker)
        finally:
            self._free.release()

    async def start(self, count: int) -> None:
        """Have `count` workers ready before they are needed."""
        missing = min(count, self._size) - len(self._idle) - len(self._lent)
        for worker in await asyncio.gather(*(self._start_worker() for _ in range(missing))):
            self._take_back(worker)

    def end(self) -> list[W]:
        """End all workers and return them; callers that use one lose it."""
        self._is_closed = True
        workers = [*(worker for _, worker in self._idle), *self._lent]
        for worker in workers:
            worker.end()
        self._idle.clear()
        return workers

    def _end_idle(self) -> None:
        """End the workers that were idle for too long, and schedule the next check."""
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][0] + MAX_IDLE_S <= loop.time():
            self._idle.pop(0)[1].end()
        self._has_timer = bool(self._idle)
        if self._has_timer:
            loop.call_at(self._idle[0][0] + MAX_IDLE_S, _end_idle_workers, weakref.ref(self))

    def _pop_idle(self) -> W | None:
        while self._idle:
            _, worker = self._idle.pop()
            if worker.is_usable:
                return worker
            worker.end()  # it died while it was idle
        return None

    async def _start_worker(self) -> W:
        starting = asyncio.ensure_future(self._start())
        try:
            worker = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A half-started worker cannot be stopped, so keep it for another call.
            starting.add_done_callback(self._keep_started)
            raise
        if self._is_closed:
            worker.end()  # it was still starting when the pool was closed
        self._refuse_if_closed()
        return worker

    def _keep_started(self, starting: "asyncio.Future[W]") -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._take_back(starting.result())

    async def _wait_for_turn(self) -> None:
        self._refuse_if_closed()
        if self._free.locked() and self._waiting >= self._max_queue:
            raise PoolFull(self._what, self._max_queue)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            self._refuse_if_closed()
        except PoolClosed:
            self._free.release()
            raise

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise PoolClosed(f"{self._what}: the pool is closed")

    def _take_back(self, worker: W) -> None:
        self._lent.discard(worker)
        is_wanted = not self._is_closed and len(self._idle) + len(self._lent) < self._size
        if is_wanted and worker.is_usable:
            self._idle.append((asyncio.get_running_loop().time(), worker))
            if not self._has_timer:
                self._end_idle()
        else:
            worker.end()


def _end_idle_workers(slots: "weakref.ref[Slots[Any]]") -> None:
    """End idle workers; the weak reference lets the timer not keep the slots alive."""
    if (alive := slots()) is not None:
        alive._end_idle()


class WorkerChannel:
    """Our end of the socket to a worker, for one question and answer at a time."""

    def __init__(self, sock: socket.socket, *, speaker: int | None = None) -> None:
        """`speaker`: the process whose answers are accepted, if others could hold the other end too."""
        sock.setblocking(False)
        self._sock = sock
        self._speaker: int | None = None
        if speaker is not None and hasattr(socket, "SO_PASSCRED"):
            self._speaker = speaker
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._is_asking = self._is_closed = self._lacks_answer = False

    @property
    def is_usable(self) -> bool:
        """Whether every question has its answer, and the other side is connected and has sent nothing else."""
        if self._is_closed or self._lacks_answer:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def ask(self, *questions: bytes, timeout_s: float) -> bytes:
        """Send `questions` and return their one answer; without an answer, the worker is unusable.

        Raise TimeoutError if none comes in time, and EOFError or OSError if either side is closed, or if anything but
        this one answer comes.
        """
        if not self.is_usable:
            self._lacks_answer = True
            raise EOFError("the other side is gone, or spoke without being asked")
        self._is_asking = self._lacks_answer = True
        number = secrets.token_bytes(_NUMBER_BYTES)
        try:
            async with asyncio.timeout(timeout_s):
                for question in questions:
                    message = _LENGTH.pack(_NUMBER_BYTES + len(question)) + number + question
                    await asyncio.get_running_loop().sock_sendall(self._sock, message)
                answer = await self._receive_answer(number)
            self._lacks_answer = False
            return answer
        finally:
            self._is_asking = False
            if self._is_closed:
                self._sock.close()

    async def _receive_answer(self, number: bytes) -> bytes:
        """Return the one message that comes. Nothing follows it, so that a short one is read at once."""
        received = bytearray()
        expected = _LENGTH.size
        while len(received) < expected:
            part = await self._receive(max(_READ_BYTES, expected - len(received)))
            if not part:
                raise EOFError(f"the stream ended after {len(received)} of {expected} bytes")
            received += part
            if len(received) >= _LENGTH.size:
                expected = _LENGTH.size + _LENGTH.unpack_from(received)[0]
        begin = _LENGTH.size + _NUMBER_BYTES
        if len(received) != expected or received[_LENGTH.size : begin] != number:
            raise EOFError("the other side answered something else than what it was asked")
        return bytes(memoryview(received)[begin:])

    async def _receive(self, size: int) -> bytes:
        """Return what comes next; raise EOFError if it comes from anybody but the speaker."""
        room = 0
        if self._speaker is not None:
            room = socket.CMSG_SPACE(_CREDENTIALS.size)
        while True:
            try:
                part, about, _, _ = self._sock.recvmsg(size, room)
                break
            except BlockingIOError:
                await self._wait_until_readable()
            except ConnectionError as error:
                raise EOFError(str(error)) from error
        if part and self._speaker is not None:
            speakers = [_CREDENTIALS.unpack(data)[0] for _, kind, data in about if kind == socket.SCM_CREDENTIALS]
            if speakers != [self._speaker]:
                raise EOFError(f"process {speakers} answered in place of {self._speaker}")
        return part

    async def _wait_until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        readable = loop.create_future()

        def wake() -> None:
            if not readable.done():
                readable.set_result(None)

        loop.add_reader(self._sock, wake)
        try:
            await readable
        finally:
            loop.remove_reader(self._sock)

    def close(self) -> None:
        """Close the socket; a pending `ask` fails."""
        self._is_closed = True
        if self._is_asking:
            # An event loop that waits for a socket does not notice `close`, but it notices this.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        else:
            self._sock.close()


class ClosablePool(ABC):
    """A pool that ends with `aclose`, with `async with`, or with an app."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_closed = False

    @abstractmethod
    async def aclose(self) -> None:
        """End everything the pool has started and kill what runs in it."""

    def close_with(self, app: Any) -> None:
        """Close the pool when `app` (FastAPI, Starlette) shuts down."""
        close_with_app(app, self.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise PoolClosed(f"the {self._what} is closed: nothing can run in it")


def close_with_app(app: Any, close: Callable[[], Awaitable[None]]) -> None:
    """Await `close` when `app` (FastAPI, Starlette) shuts down, after its own shutdown steps."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(of: Any) -> AsyncIterator[Any]:
        try:
            async with inner(of) as state:
                yield state
        finally:
            await close()

    app.router.lifespan_context = lifespan
