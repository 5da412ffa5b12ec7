# SPDX-License-Identifier: Apache-2.0
"""Requests that come at about the same time become one batch, generated in a thread beside the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from responses_api_models.transformers_model.engine import Generation

_Waiting = tuple[Generation, "asyncio.Future[None]"]


class Batcher:
    """Gathers generations and lets `run` write them, one batch after the other."""

    def __init__(self, run: Callable[[Sequence[Generation]], None], *, most: int, wait_s: float) -> None:
        """`most`: the size of a batch; `wait_s`: how long the first of a batch waits for others."""
        self._run = run
        self._most = most
        self._wait_s = wait_s
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        # One thread: a second batch at once would only take the cores from the first.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="generate")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work, on the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """End after the batch that is under way; what waits is given up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        while not self._queue.empty():
            self._queue.get_nowait()[1].cancel()
        await asyncio.to_thread(self._thread.shutdown)

    async def generate(self, generation: Generation) -> None:
        """Return when `generation` is written. A caller that is cancelled ends it at its next token."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((generation, done))
        try:
            await done
        except asyncio.CancelledError:
            generation.is_cancelled.set()
            raise

    @property
    def waiting(self) -> int:
        """How many generations no batch has taken yet."""
        return self._queue.qsize()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._gather()
            wanted = [(generation, done) for generation, done in batch if not generation.is_cancelled.is_set()]
            if not wanted:
                continue
            try:
                await loop.run_in_executor(self._thread, self._run, [generation for generation, _ in wanted])
            except Exception as error:  # whoever waits is told, and the next batch gets its chance
                for _, done in wanted:
                    if not done.done():
                        done.set_exception(error)
                continue
            for _, done in wanted:
                if not done.done():
                    done.set_result(None)

    async def _gather(self) -> list[_Waiting]:
        """Wait for a generation, and a moment for those that come with it."""
        batch = [await self._queue.get()]
        ends_at = asyncio.get_running_loop().time() + self._wait_s
        while len(batch) < self._most:
            try:
                async with asyncio.timeout_at(ends_at):
                    batch.append(await self._queue.get())
            except TimeoutError:
                break
        return batch
