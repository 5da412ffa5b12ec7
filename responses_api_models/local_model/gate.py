# SPDX-License-Identifier: Apache-2.0
"""Who may use the engine: as many at once as it has slots, the others in the order of their coming, up to a bound.

Server instances that share an engine share its gate, and may live on different event loops.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LONGEST_HINT_S = 60.0


class GateFull(Exception):
    """Too many are waiting already; `retry_after_s` is when one of them will probably have gone through."""

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        super().__init__(waiting, retry_after_s)
        self.waiting = waiting
        self.retry_after_s = retry_after_s


class Gate:
    """Lets `places` callers through at once."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._inside = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()
        self._mean_stay_s = 1.0

    @property
    def inside(self) -> int:
        return self._inside

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def hold_place(self, max_waiting: int) -> AsyncIterator[None]:
        """Hold a place as long as the context lasts; GateFull if `max_waiting` others wait for one already."""
        await self._enter(max_waiting)
        entered = time.monotonic()
        try:
            yield
        finally:
            self._mean_stay_s += 0.2 * (time.monotonic() - entered - self._mean_stay_s)
            self._leave()

    async def _enter(self, max_waiting: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._inside < self.places:
                self._inside += 1
                return
            if len(self._waiting) >= max_waiting:
                raise GateFull(len(self._waiting), self._estimate_wait_s())
            turn = (loop, loop.create_future())
            self._waiting.append(turn)
        try:
            await turn[1]
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    def _give_up(self, turn: tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self._leave()  # the place came together with the cancellation

    def _leave(self) -> None:
        """Hand the place to the next who waits, if anyone does."""
        with self._lock:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_wake, turn)
                    return
            self._inside -= 1

    def _estimate_wait_s(self) -> float:
        return min(_LONGEST_HINT_S, max(1.0, self._mean_stay_s * (len(self._waiting) + 1) / self.places))


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
