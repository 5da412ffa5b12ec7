# SPDX-License-Identifier: Apache-2.0
"""Comparisons on their way to worker processes: several in one call when many wait, because each call has its price.

A call for several that fails, or takes long, is made again for each of them alone: so each has the time limit for
itself, and none suffers from another. What a comparison is worth is left to the server.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from nemo_gym.cpu_pool import CpuPool, WorkerDied, usable_cpus
from resources_servers.math_with_judge.library import LibraryVerdict, verdict_on, verdicts_on

_PRELOADED = ("resources_servers.math_with_judge.warm_library",)
_MOST_IN_A_CALL = 16
_SLOW_S = 1.0


class CannotBeCompared(Exception):
    """An answer on which the library dies."""


class _Waiting(NamedTuple):
    pair: tuple[str, str]
    verdict: "asyncio.Future[LibraryVerdict]"
    is_alone: bool = False


class Comparisons:
    """Verdicts of the library from one process a processor, and further ones, up to `max_processes`, for calls that
    take long: so an answer on which the library hangs does not hold the others up."""

    def __init__(self, max_processes: int, timeout_s: float) -> None:
        self._max_calls = max_processes
        self._swift_calls = min(max_processes, usable_cpus())
        self.pool = CpuPool(workers=max_processes, timeout_s=timeout_s, preload=_PRELOADED)
        self._waiting: deque[_Waiting] = deque()
        self._calls: set[asyncio.Task[None]] = set()
        self._slow: set[asyncio.Task[None]] = set()

    async def verdict(self, expected_answer: str, generated_answer: str) -> LibraryVerdict:
        """Return what the library says. TimeoutError: nothing in time. WorkerDied: it took its process down."""
        one = _Waiting((expected_answer, generated_answer), asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._start_calls()
        return await one.verdict

    async def verdict_unless_fatal(self, expected_answer: str, generated_answer: str) -> LibraryVerdict:
        """Return what the library says; CannotBeCompared if the answer, and not any answer, takes two workers down."""
        for _ in range(2):
            try:
                return await self.verdict(expected_answer, generated_answer)
            except WorkerDied as error:
                last = error
        await self.verdict("1", r"\boxed{1}")
        raise CannotBeCompared(str(last)) from last

    def _start_calls(self) -> None:
        while self._waiting and len(self._calls) < min(self._max_calls, self._swift_calls + len(self._slow)):
            self._start_call(self._next_together())

    def _next_together(self) -> list[_Waiting]:
        share = -(-len(self._waiting) // self._swift_calls)
        together = [self._waiting.popleft()]
        while len(together) < min(share, _MOST_IN_A_CALL) and not (together[0].is_alone or self._waiting[0].is_alone):
            together.append(self._waiting.popleft())
        return together

    def _start_call(self, together: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        call = loop.create_task(self._compare(together))
        timer = loop.call_later(_SLOW_S, self._make_room_beside, call)
        self._calls.add(call)

        def end(_: object) -> None:
            timer.cancel()
            self._calls.discard(call)
            self._slow.discard(call)
            self._start_calls()

        call.add_done_callback(end)

    def _make_room_beside(self, call: "asyncio.Task[None]") -> None:
        self._slow.add(call)
        self._start_calls()

    async def _compare(self, together: list[_Waiting]) -> None:
        wanted = [one for one in together if not one.verdict.done()]  # whoever asked may be gone
        if len(wanted) > 1:
            await self._compare_several(wanted)
        elif wanted:
            await self._compare_one(wanted[0])

    async def _compare_one(self, one: _Waiting) -> None:
        try:
            _settle(one, await self.pool.run(verdict_on, *one.pair))
        except Exception as error:
            _settle(one, error)

    async def _compare_several(self, together: list[_Waiting]) -> None:
        try:
            verdicts = await self.pool.run_for(_SLOW_S, verdicts_on, [one.pair for one in together])
        except Exception:  # whose fault it is shows when each is alone
            self._waiting.extendleft(one._replace(is_alone=True) for one in reversed(together))
        else:
            for one, verdict in zip(together, verdicts, strict=True):
                _settle(one, verdict)


def _settle(one: _Waiting, outcome: LibraryVerdict | Exception) -> None:
    if one.verdict.done():
        return
    if isinstance(outcome, Exception):
        one.verdict.set_exception(outcome)
    else:
        one.verdict.set_result(outcome)
