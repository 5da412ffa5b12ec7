# SPDX-License-Identifier: Apache-2.0
"""All servers of a run, in this process or in processes of their own: started, watched and stopped together.

Ready means that every server said so. A death ends the run: nothing is restarted silently.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from nemo_gym._servers.http.admission import OWN_NAMES_ONLY, AccessRules
from nemo_gym._servers.http.sockets import bind
from nemo_gym._servers.processes.server_host import InlineServer, InlineSpec, build_in_thread, serve_inline
from nemo_gym._servers.processes.server_logs import ServerLogs
from nemo_gym._servers.processes.server_process import ChildSpec, ServerDied, ServerLate, ServerProcess

_FIRST_NOTICE_S = 5.0
_NEXT_NOTICE_S = 15.0
T = TypeVar("T")


class RunningServer(Protocol):
    """A server that runs elsewhere: in a process of its own, or on a node of a cluster."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int: ...
    async def ready(self) -> None:
        """Return when the server listens. If it ends before, this waits forever."""

    async def wait_for_death(self) -> ServerDied:
        """Wait for its end and say how it ended."""

    async def stop(self) -> None:
        """End it."""


class RemoteSpec(Protocol):
    """A server that is to be started on another machine."""

    @property
    def name(self) -> str: ...
    async def start(self, on_line: Callable[[str], None]) -> RunningServer:
        """Start it; `on_line` gets every line it prints."""


@dataclass(frozen=True)
class Launch:
    """What to run."""

    head: InlineServer | None
    """Served before the others are started, so that they may ask it; None where another process serves it."""
    inline: Sequence[InlineSpec]
    children: Sequence[ChildSpec]
    startup_timeout_s: float
    access: AccessRules = OWN_NAMES_ONLY
    """Who may call the head server and the inline ones; processes read it from their config."""
    remote: Sequence[RemoteSpec] = ()


@dataclass(frozen=True)
class Running:
    """Servers that were started."""

    pids: dict[str, int]
    first_death: "asyncio.Task[ServerDied]"
    children: Sequence[RunningServer] = ()

    async def run_unless_dead(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, unless a server dies before."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self.first_death}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self.first_death.result()
        finally:
            await _cancel(task)


@asynccontextmanager
async def supervise(launch: Launch, logs: ServerLogs, notice: Callable[[str], None]) -> AsyncIterator[Running]:
    """Run all servers of `launch` while the context lasts; `logs` takes what they print."""
    async with AsyncExitStack() as stack:
        specs: list[InlineSpec | ChildSpec] = [*launch.inline, *launch.children]
        sockets = {spec.name: stack.enter_context(bind(spec.host, spec.port, spec.name)) for spec in specs}
        if launch.head is not None:
            await stack.enter_async_context(serve_inline([launch.head], access=launch.access))
        waiting = dict.fromkeys([spec.name for spec in launch.children] + [spec.name for spec in launch.remote])
        try:
            async with asyncio.timeout(launch.startup_timeout_s) as deadline:
                with _announce_waiting(waiting, logs, launch.startup_timeout_s, notice):
                    running = await _start(launch, sockets, logs, waiting, stack)
        except TimeoutError:
            if not deadline.expired():
                raise
            late = {name: logs.last_lines(name) for name in waiting}
            raise ServerLate(launch.startup_timeout_s, late) from None
        yield running


async def _start(
    launch: Launch, sockets: dict[str, Any], logs: ServerLogs, waiting: dict[str, None], stack: AsyncExitStack
) -> Running:
    """Start everything on `stack` and return when all are ready; `waiting` names whom it waits for meanwhile."""
    children = list[RunningServer]()
    stack.push_async_callback(_stop_all, children)
    for spec in launch.children:
        children.append(await ServerProcess.start(spec, sockets[spec.name], partial(logs.line, spec.name)))
    for remote in launch.remote:
        children.append(await remote.start(partial(logs.line, remote.name)))
    death = asyncio.create_task(_wait_for_death(children))
    stack.push_async_callback(_cancel, death)
    running = Running({child.name: child.pid for child in children}, death, children)
    children_ready = asyncio.create_task(_wait_for_all(children, waiting))
    stack.push_async_callback(_cancel, children_ready)

    servers = await running.run_unless_dead(_built(launch.inline, sockets, waiting))
    waiting.update(dict.fromkeys(spec.name for spec in servers))
    await stack.enter_async_context(serve_inline(servers, waiting.pop, logs.last_lines, launch.access))
    await running.run_unless_dead(children_ready)
    return running


async def _built(specs: Sequence[InlineSpec], sockets: dict[str, Any], waiting: dict[str, None]) -> list[InlineServer]:
    servers = list[InlineServer]()
    for spec in specs:  # one after the other: imports would only wait for each other's locks
        waiting[spec.name] = None
        app = await build_in_thread(spec)
        del waiting[spec.name]
        servers.append(InlineServer(spec.name, spec.host, spec.port, app, sockets[spec.name]))
    return servers


async def _wait_for_all(children: Sequence[RunningServer], waiting: dict[str, None]) -> None:
    async def ready(child: RunningServer) -> None:
        await child.ready()
        del waiting[child.name]

    await asyncio.gather(*(ready(child) for child in children))


@contextmanager
def _announce_waiting(
    waiting: dict[str, None], logs: ServerLogs, timeout_s: float, notice: Callable[[str], None]
) -> Iterator[None]:
    """While the context lasts, say now and then who is still being waited for."""

    async def tell() -> None:
        pause_s = min(_FIRST_NOTICE_S, timeout_s / 2)
        while True:
            await asyncio.sleep(pause_s)
            for name in waiting:
                last = logs.last_lines(name)[-1:] or ("nothing printed yet",)
                notice(f"still waiting for {name!r}; its last line: {last[0]}")
            pause_s = _NEXT_NOTICE_S

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()


async def _wait_for_death(children: Sequence[RunningServer]) -> ServerDied:
    if not children:
        await asyncio.get_running_loop().create_future()
    deaths = [asyncio.create_task(child.wait_for_death()) for child in children]
    try:
        done, _ = await asyncio.wait(deaths, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in deaths:
            task.cancel()
        await asyncio.gather(*deaths, return_exceptions=True)


async def _stop_all(children: Sequence[RunningServer]) -> None:
    await asyncio.gather(*(child.stop() for child in children))


async def _cancel(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
