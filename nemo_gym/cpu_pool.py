# SPDX-License-Identifier: Apache-2.0
"""Worker processes for CPU-heavy verifiers: warm, bounded in number, and killed when a call takes too long.

They are for trusted code that may hang or crash, such as a computer algebra system on a model's input. Code that a
model wrote belongs in `nemo_gym.code_execution`, which sandboxes it.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from nemo_gym._isolation.cpu_workers import CpuWorker, Template, pack_call
from nemo_gym._isolation.lent_workers import (
    ClosablePool,
    PoolClosed as PoolClosed,
    PoolFull as PoolFull,
    Slots,
    WorkerDied as WorkerDied,
)

P = ParamSpec("P")
T = TypeVar("T")


class CpuPool(ClosablePool):
    """`await pool.run(fn, *args)` runs `fn` in one of a few worker processes.

    Workers start with the first call and end with `aclose`, `close_with(app)`, or this process, however it ends.
    """

    def __init__(
        self,
        workers: int | None = None,
        max_queue: int = 10_000,
        timeout_s: float = 30.0,
        preload: Sequence[str] = (),
    ) -> None:
        """`workers` is the number of processes; by default one per CPU that this process may use. `timeout_s` limits
        how long a call runs, not how long it waits; up to `max_queue` calls wait. `preload` names modules to import
        once, so that the replacement of a killed worker already has them."""
        super().__init__("CPU pool")
        self._size = workers or usable_cpus()
        self._max_queue = max_queue
        self._timeout_s = timeout_s
        self._preload = tuple(preload)
        self._template: Template | None = None
        self._slots: Slots[CpuWorker] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(*args, **kwargs)` in a worker process; `fn`, its arguments and its result must be picklable.

        What `fn` raises is raised here. TimeoutError: it took too long and was killed. WorkerDied: its process ended.
        PoolFull: too many calls are waiting. PoolClosed: the pool was closed before there was an answer.
        """
        return await self.run_for(self._timeout_s, fn, *args, **kwargs)

    async def run_for(self, timeout_s: float, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run`, with a time limit for this call."""
        request = pack_call(fn, args, kwargs)
        what = getattr(fn, "__qualname__", repr(fn))
        async with self._slots_of_this_loop().lend() as worker:
            try:
                result: T = await worker.call(request, what, timeout_s)
            except WorkerDied:
                self._refuse_if_closed()
                raise
            return result

    async def aclose(self) -> None:
        """End all workers; calls in progress fail."""
        self._is_closed = True
        template = self._end_workers()
        if template is not None:
            await asyncio.to_thread(template.end)

    def _slots_of_this_loop(self) -> Slots[CpuWorker]:
        self._refuse_if_closed()
        loop = asyncio.get_running_loop()
        if self._slots is None or self._loop is not loop:
            if (old := self._end_workers()) is not None:  # workers of an event loop that has ended
                old.end()
            template = Template(self._preload)

            async def start() -> CpuWorker:
                return await asyncio.to_thread(template.start_worker)

            self._loop = loop
            self._template = template
            self._slots = Slots("CPU pool", start, size=self._size, max_queue=self._max_queue)
        return self._slots

    def _end_workers(self) -> Template | None:
        """Kill all workers; return the process that forked them, which may take a moment to end."""
        slots = self._slots
        template = self._template
        self._slots = self._template = None
        if slots is not None:
            slots.end()
        return template


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
