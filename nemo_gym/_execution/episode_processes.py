# SPDX-License-Identifier: Apache-2.0
"""Environments in processes of their own: each episode has one to itself, forked from a process that is warm.

So an environment that hangs, crashes, eats memory or draws from the generators of its library does that to nobody
else. A process serves one episode after the other, unless it has grown; how many there are at a time is bounded, and
further episodes wait for their turn.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._execution import hosted_environment
from nemo_gym._execution.cpu_workers import CpuWorker, Template, pack_call, pack_call_of_preloaded
from nemo_gym._execution.workers import ClosablePool, Slots, WorkerDied
from nemo_gym.errors import RolloutFailure

Make = Callable[[dict[str, Any]], Any]
_MOST_WAITING = 1_000_000
_CLOSE_TIMEOUT_S = 10.0
_GROWTH_TO_KEEP = 0.25
"""A process that has grown by more than this share of what it may is not used for another episode."""


class EpisodeProcesses(ClosablePool):
    """The processes of one server. They end with `aclose`, `close_with(app)`, or this process, whatever ends it."""

    def __init__(self, make: Make, *, size: int, memory_bytes: int, preload: Sequence[str] = ()) -> None:
        """`make` makes the environment of a task; it must be picklable, so that other processes can find it.

        At most `size` episodes run at a time, each within `memory_bytes` on top of what `preload`, modules that are
        imported once, takes.
        """
        super().__init__("pool of environments")
        self._make, self._memory_bytes = make, memory_bytes
        loaded = [hosted_environment.__name__, *preload, *([make.__module__] if make.__module__ != "__main__" else ())]
        main = getattr(sys.modules["__main__"], "__file__", None) if make.__module__ == "__main__" else None
        template = Template(loaded, main_path=None if main is None else str(Path(main).absolute()))
        self._template = template

        async def start() -> CpuWorker:
            return await asyncio.to_thread(template.start_worker)

        self._slots = Slots("pool of environments", start, size=size, max_queue=_MOST_WAITING)

    async def open(self) -> "Episode":
        """Wait until a process is free, and return the episode that has it."""
        self._refuse_if_closed()
        stack = AsyncExitStack()
        worker = await stack.enter_async_context(self._slots.lend())
        return Episode(worker, stack, self._make, self._memory_bytes)

    async def aclose(self) -> None:
        """End all processes; episodes under way fail."""
        self._is_closed = True
        self._slots.end()
        await asyncio.to_thread(self._template.end)


class Episode:
    """One environment in a process of its own, from `reset` to `end`. After a failure it can only be ended."""

    def __init__(self, worker: CpuWorker, stack: AsyncExitStack, make: Make, memory_bytes: int) -> None:
        self._worker, self._stack, self._make, self._memory_bytes = worker, stack, make, memory_bytes
        self._turn = asyncio.Lock()
        self._is_ended = False
        self.steps = 0
        """How many steps have been taken."""
        self.tools: list[dict[str, Any]] = []
        """The tools that the environment offers."""

    async def reset(self, task: dict[str, Any], seed: int, timeout_s: float) -> dict[str, Any]:
        """Make the environment and reset it; return its `observation`, `info` and `tools`."""
        request = pack_call(hosted_environment.reset, (self._make, task, seed, self._memory_bytes), {})
        begun = await self._ask(request, "reset", timeout_s)
        self.tools = begun["tools"] or []
        return begun

    async def step(self, action: Sequence[Any], timeout_s: float) -> dict[str, Any]:
        """Act; return `observation`, `reward`, `terminated`, `truncated` and `info`."""
        self.steps += 1
        return await self._ask(pack_call_of_preloaded(hosted_environment.step, *action), "step", timeout_s)

    async def end(self) -> None:
        """Close the environment and give its process back. Ending twice is no error."""
        if self._is_ended:
            return
        self._is_ended = True
        try:
            async with self._turn:
                if self._worker.is_usable:
                    request = pack_call_of_preloaded(hosted_environment.close)
                    grown = await self._worker.call(request, "close", _CLOSE_TIMEOUT_S)
                    if grown > self._memory_bytes * _GROWTH_TO_KEEP:
                        self._worker.end()
        except (TimeoutError, WorkerDied):
            pass  # the reward is known, and a process that did not answer is not used again
        finally:
            await self._stack.aclose()

    async def _ask(self, request: bytes, what: str, timeout_s: float) -> dict[str, Any]:
        async with self._turn:
            try:
                answer: dict[str, Any] = orjson.loads(await self._worker.call(request, what, timeout_s))
            except TimeoutError:
                raise RolloutFailure(
                    "timeout",
                    f"the environment did not finish `{what}` within {timeout_s:g} s, and its process was ended.\n"
                    "hint: allow it more time in the config of its server, or see where it hangs",
                ) from None
            except WorkerDied as error:
                raise RolloutFailure(
                    "worker_died",
                    f"the process of the environment ended during `{what}`: it crashed, was killed, or ran out of "
                    "memory.\nhint: `--resume` plays the rollout again",
                    retryable=True,
                ) from error
        if "raised" in answer:
            raise RolloutFailure(
                "tool_server",
                f"the environment raised {answer['raised']} in `{what}`.\n{answer['traceback']}\n"
                "hint: this is an error of the environment or of its task, not of the model",
            )
        if "out_of_memory" in answer:
            raise RolloutFailure(
                "tool_server",
                f"the environment needed more than {self._memory_bytes // 2**20} MB of memory in `{what}`.\n"
                "hint: does it leak? Else allow it more with `session_memory_mb` in the config of its server",
            )
        return answer
