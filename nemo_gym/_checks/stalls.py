# SPDX-License-Identifier: Apache-2.0
"""How long a server is deaf while it works: a heartbeat beside the work measures the longest silence.

It works for a server in this event loop, which the work would stop, and for one in another process, whose answers
would be late.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

STALL_WARNS_S, STALL_FAILS_S = 0.1, 1.0
_BEAT_S = 0.005
_TRIES = 2


async def longest_stall(beat: Callable[[], Awaitable[Any]], work: Callable[[], Awaitable[None]]) -> float:
    """The longest time that `beat` had to wait during `work`, in seconds.

    The machine has other things to do, too: of several tries the best one counts, in which only the work is slow.
    """
    stalls = []
    for _ in range(_TRIES):
        stalls.append(await _one_try(beat, work))
        if stalls[-1] < STALL_WARNS_S:
            break
    return min(stalls)


async def _one_try(beat: Callable[[], Awaitable[Any]], work: Callable[[], Awaitable[None]]) -> float:
    longest, is_over = 0.0, False

    async def listen() -> None:
        nonlocal longest
        while not is_over:
            started = time.monotonic()
            await asyncio.sleep(_BEAT_S)
            await beat()
            longest = max(longest, time.monotonic() - started - _BEAT_S)

    listening = asyncio.create_task(listen())
    try:
        await work()
        is_over = True
        await listening  # a beat that the work has held up counts to its end
    finally:
        listening.cancel()
    return longest
