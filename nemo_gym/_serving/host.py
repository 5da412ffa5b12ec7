# SPDX-License-Identifier: Apache-2.0
"""Several servers in one process and one event loop, each on its own port.

Calls between them go straight into the target's app; to everyone else each answers on its port. Starting is all or
nothing: a port that is taken stops everything before anything is served.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from nemo_gym._serving import binding
from nemo_gym._serving.logs import InServer
from nemo_gym._transport import local


@dataclass(frozen=True)
class InlineServer:
    """One app and where it listens."""

    name: str
    host: str
    port: int
    app: Any
    sock: socket.socket | None = None
    """Already bound to host and port; None: bound when served."""


@contextlib.asynccontextmanager
async def serve_inline(servers: Sequence[InlineServer]) -> AsyncIterator[None]:
    """Serve all of them while the context lasts."""
    sockets = _bind_all(servers)
    apps = [InServer(spec.app, spec.name) for spec in servers]
    running = [
        binding.uvicorn_server(app, spec.host, spec.port, quiet_signals=True)
        for spec, app in zip(servers, apps, strict=True)
    ]
    tasks = [
        asyncio.create_task(server.serve(sockets=[sock]), name=f"serve {spec.name}")
        for spec, server, sock in zip(servers, running, sockets, strict=True)
    ]
    try:
        await _all_ready(running, tasks)
        for spec, app in zip(servers, apps, strict=True):
            local.host_app(spec.host, spec.port, app)
        yield
    finally:
        for spec in servers:
            local.unhost_app(spec.host, spec.port)
        for server in running:
            server.should_exit = True
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in sockets:
            sock.close()


def _bind_all(servers: Sequence[InlineServer]) -> list[Any]:
    with contextlib.ExitStack() as undo:
        sockets = [undo.enter_context(spec.sock or binding.bind(spec.host, spec.port, spec.name)) for spec in servers]
        undo.pop_all()
    return sockets


async def _all_ready(servers: Sequence[uvicorn.Server], tasks: Sequence[asyncio.Task[None]]) -> None:
    ready = [asyncio.create_task(server.ready.wait()) for server in servers if isinstance(server, binding.OwnedServer)]
    everything: asyncio.Future[Any] = asyncio.gather(*ready)
    waiting: set[asyncio.Future[Any]] = {everything, *tasks}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if everything.done():
        return
    everything.cancel()
    for task in tasks:
        if task.done():
            task.result()
            raise RuntimeError(f"{task.get_name()!r} ended before it was ready; its log says why")
