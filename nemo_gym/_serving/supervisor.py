# SPDX-License-Identifier: Apache-2.0
"""All servers of a run, in this process or in processes of their own: started, watched and stopped together.

Ready means that every server said so. A death ends the run: nothing is restarted silently.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from nemo_gym._serving.binding import bind
from nemo_gym._serving.host import InlineServer, serve_inline
from nemo_gym._serving.processes import Child, ChildSpec, ServerDied

_FIRST_NOTICE_S, _NEXT_NOTICE_S = 5.0, 15.0


@dataclass(frozen=True)
class Launch:
    """What to run."""

    inline: Sequence[InlineServer]
    children: Sequence[ChildSpec]
    startup_timeout_s: float


@dataclass(frozen=True)
class Running:
    """Servers that are ready."""

    pids: dict[str, int]
    first_death: "asyncio.Task[ServerDied]"


@asynccontextmanager
async def supervised(
    launch: Launch, on_line: Callable[[str, str], None], notice: Callable[[str], None]
) -> AsyncIterator[Running]:
    """Run all servers of `launch` while the context lasts; `on_line(server, line)` gets what processes print."""
    async with AsyncExitStack() as stack:
        children = list[Child]()
        stack.push_async_callback(_stop_all, children)
        sockets = [stack.enter_context(bind(spec.host, spec.port, spec.name)) for spec in launch.children]
        for spec, sock in zip(launch.children, sockets, strict=True):
            children.append(await Child.start(spec, sock, partial(on_line, spec.name)))
        await stack.enter_async_context(serve_inline(launch.inline))
        await _all_ready(children, launch.startup_timeout_s, notice)
        death = asyncio.create_task(_first_death(children))
        stack.push_async_callback(_cancelled, death)
        yield Running({child.spec.name: child.pid for child in children}, death)


async def _all_ready(children: Sequence[Child], timeout_s: float, notice: Callable[[str], None]) -> None:
    waiting = {asyncio.create_task(child.wait_until_ready(timeout_s)): child for child in children}
    pause_s = _FIRST_NOTICE_S
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                del waiting[task]
                task.result()
            if not done:
                pause_s = _NEXT_NOTICE_S
                notice("\n".join(_late(child) for child in waiting.values()))
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _late(child: Child) -> str:
    last = child.last_lines[-1:] or ("nothing printed yet",)
    return f"still waiting for {child.spec.name!r}; its last line: {last[0]}"


async def _first_death(children: Sequence[Child]) -> ServerDied:
    if not children:
        await asyncio.get_running_loop().create_future()
    deaths = [asyncio.create_task(child.died()) for child in children]
    try:
        done, _ = await asyncio.wait(deaths, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in deaths:
            task.cancel()
        await asyncio.gather(*deaths, return_exceptions=True)


async def _stop_all(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children))


async def _cancelled(task: "asyncio.Task[ServerDied]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
