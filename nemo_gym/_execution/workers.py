# SPDX-License-Identifier: Apache-2.0
"""A bounded number of workers, lent one at a time, and a bounded queue for them. What a worker is, is not said here."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from nemo_gym._execution.errors import PoolClosed, PoolFull


class Worker(Protocol):
    """What a slot holds."""

    @property
    def is_usable(self) -> bool:
        """Whether it may be lent again."""

    def end(self) -> None:
        """Kill it and let go of all it holds; may be called twice."""


W = TypeVar("W", bound=Worker)


class Slots(Generic[W]):
    """Workers that are started when first needed, and replaced when they are no longer usable.

    Belongs to the event loop in which it is used first.
    """

    def __init__(self, what: str, start: Callable[[], Awaitable[W]], *, size: int, max_queue: int) -> None:
        if size < 1 or max_queue < 0:
            raise ValueError(f"{what}: needs at least one worker and no negative queue, not {size} and {max_queue}")
        self._what, self._start, self._size, self._max_queue = what, start, size, max_queue
        self._free = asyncio.Semaphore(size)
        self._waiting = 0
        self._idle: list[W] = []
        self._lent: set[W] = set()
        self._is_closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[W]:
        """A worker for the caller alone, started if none is idle."""
        await self._queue()
        try:
            worker = self._idle_one() or await self._new_one()
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
        for worker in await asyncio.gather(*(self._new_one() for _ in range(missing))):
            self._take_back(worker)

    def end(self) -> list[W]:
        """End all workers and give them back; whoever has one finds it gone."""
        self._is_closed = True
        workers = [*self._idle, *self._lent]
        for worker in workers:
            worker.end()
        self._idle.clear()
        return workers

    def _idle_one(self) -> W | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_usable:
                return worker
            worker.end()  # it died while it was idle
        return None

    async def _new_one(self) -> W:
        starting = asyncio.ensure_future(self._start())
        try:
            worker = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep)  # half-started workers cannot be stopped, so it is for another call
            raise
        if self._is_closed:
            worker.end()  # whoever closed the pool did not know of it yet
        self._refuse_if_closed()
        return worker

    def _keep(self, starting: "asyncio.Future[W]") -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._take_back(starting.result())

    async def _queue(self) -> None:
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
            self._idle.append(worker)
        else:
            worker.end()
