# SPDX-License-Identifier: Apache-2.0
"""Run each episode's environment in its own process, forked from a warm template.

An environment that hangs, crashes, leaks memory or draws from its library's global generators affects no other episode.
A process is reused for later episodes unless it has grown. The number of processes is bounded; further episodes wait.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._isolation import hosted_environment
from nemo_gym._isolation.cpu_workers import CpuWorker, Template, pack_call, pack_call_of_preloaded
from nemo_gym._isolation.lent_workers import ClosablePool, Slots, WorkerDied
from nemo_gym.errors import RolloutFailure

Make = Callable[[dict[str, Any]], Any]
_MAX_WAITING = 1_000_000
_CLOSE_TIMEOUT_S = 10.0
_MAX_REUSE_GROWTH = 0.25
"""A process that has used more than this share of its memory limit is not reused."""


class EpisodeProcesses(ClosablePool):
    """The processes of one server. They end with `aclose`, the app of `close_with(app)`, or this process."""

    def __init__(self, make: Make, *, size: int, memory_bytes: int, preload: Sequence[str] = ()) -> None:
        """Play environments that `make(task)` returns; `make` must be picklable, so that other processes can find it.

        At most `size` episodes run at a time. Each may use `memory_bytes` beyond what the modules in `preload`, which
        are imported once, take up.
        """
        super().__init__("pool of environments")
        self._make = make
        self._memory_bytes = memory_bytes
        loaded = [hosted_environment.__name__, *preload]
        main_path = None
        if make.__module__ != "__main__":
            loaded.append(make.__module__)
        elif main := getattr(sys.modules["__main__"], "__file__", None):
            main_path = str(Path(main).absolute())
        template = Template(loaded, main_path=main_path)
        self._template = template

        async def start() -> CpuWorker:
            return await asyncio.to_thread(template.start_worker)

        self._slots = Slots("pool of environments", start, size=size, max_queue=_MAX_WAITING)

    async def open(self) -> "Episode":
        """Wait for a free process and return an episode that runs in it."""
        self._refuse_if_closed()
        stack = AsyncExitStack()
        worker = await stack.enter_async_context(self._slots.lend())
        return Episode(worker, stack, self._make, self._memory_bytes)

    async def aclose(self) -> None:
        """End all processes. Running episodes fail."""
        self._is_closed = True
        self._slots.end()
        await asyncio.to_thread(self._template.end)


class Episode:
    """One environment in its own process, from `reset` to `end`. After a failure it can only be ended."""

    def __init__(self, worker: CpuWorker, stack: AsyncExitStack, make: Make, memory_bytes: int) -> None:
        self._worker = worker
        self._stack = stack
        self._make = make
        self._memory_bytes = memory_bytes
        self._turn = asyncio.Lock()
        self._is_ended = False
        self.steps = 0
        """The number of steps taken."""
        self.tools: list[dict[str, Any]] = []
        """The tools the environment offers."""

    async def reset(self, task: dict[str, Any], seed: int, timeout_s: float) -> dict[str, Any]:
        """Make the environment and reset it; return its `observation`, `info` and `tools`."""
        request = pack_call(hosted_environment.reset, (self._make, task, seed, self._memory_bytes), {})
        start = await self._ask(request, "reset", timeout_s)
        self.tools = start["tools"] or []
        return start

    async def step(self, action: Sequence[Any], timeout_s: float) -> dict[str, Any]:
        """Take a step; return `observation`, `reward`, `terminated`, `truncated` and `info`."""
        self.steps += 1
        return await self._ask(pack_call_of_preloaded(hosted_environment.step, *action), "step", timeout_s)

    async def end(self) -> None:
        """Close the environment and return its process to the pool. Calling this twice is fine."""
        if self._is_ended:
            return
        self._is_ended = True
        try:
            async with self._turn:
                if self._worker.is_usable:
                    request = pack_call_of_preloaded(hosted_environment.close)
                    grown = await self._worker.call(request, "close", _CLOSE_TIMEOUT_S)
                    if grown > self._memory_bytes * _MAX_REUSE_GROWTH:
                        self._worker.end()
        except (TimeoutError, WorkerDied):
            pass  # the reward is already known, and a process that did not answer is not reused
        finally:
            await self._stack.aclose()

    async def _ask(self, request: bytes, what: str, timeout_s: float) -> dict[str, Any]:
        async with self._turn:
            try:
                answer: dict[str, Any] = orjson.loads(await self._worker.call(request, what, timeout_s))
            except TimeoutError:
                raise RolloutFailure(
                    "timeout",
                    f"the environment did not finish `{what}` within {timeout_s:g} s, so its process was killed.\n"
                    "hint: allow more time in the server's config, or find out where it hangs",
                ) from None
            except WorkerDied as error:
                raise RolloutFailure(
                    "worker_died",
                    f"the environment's process ended during `{what}`: it crashed, was killed, or ran out of memory.\n"
                    "hint: `--resume` runs the rollout again",
                    retryable=True,
                ) from error
        if "raised" in answer:
            raise RolloutFailure(
                "tool_server",
                f"the environment raised {answer['raised']} in `{what}`.\n{answer['traceback']}\n"
                "hint: the fault is in the environment or its task, not in the model",
            )
        if "out_of_memory" in answer:
            raise RolloutFailure(
                "tool_server",
                f"the environment needed more than {self._memory_bytes // 2**20} MB of memory in `{what}`.\n"
                "hint: if it does not leak, raise `session_memory_mb` in the server's config",
            )
        return answer
