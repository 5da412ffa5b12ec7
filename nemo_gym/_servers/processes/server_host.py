# SPDX-License-Identifier: Apache-2.0
"""Several servers in one process and one event loop, each on its own port.

Calls between them go straight into the target's app; to everyone else each answers on its port. Starting is all or
nothing: a port that is taken stops everything before anything is served.
"""

import asyncio
import contextlib
import contextvars
import socket
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym._servers.http import listening, sockets as binding
from nemo_gym._servers.http.admission import OWN_NAMES_ONLY, AccessRules
from nemo_gym._servers.processes.server_logs import SHOWN_LINES
from nemo_gym._servers.processes.server_process import ServerDied
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.masked_descriptor import mask_descriptor
from nemo_gym.errors import GymError

_STOP_GRACE_S = 10.0


@dataclass(frozen=True)
class InlineServer:
    """One app and where it listens."""

    name: str
    host: str
    port: int
    app: Any
    sock: socket.socket | None = None
    """Already bound to host and port; None: bound when served."""


@dataclass(frozen=True)
class InlineSpec:
    """A server of this process that is still to be built."""

    name: str
    host: str
    port: int
    build: Callable[[], Any]
    """Makes the app. It imports and runs the server's own code, which may fail, exit or hang."""


def build(spec: InlineSpec) -> Any:
    """Return the app of a server; if its code fails or exits instead, report that as the end of the server."""
    mask_descriptor()
    try:
        with registry.work_for(spec.name):
            return spec.build()
    except GymError:
        raise
    except SystemExit as error:
        raise ServerDied(
            spec.name, f"exited with code {error.code or 0} while it was loaded", _list_last_lines(error)
        ) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # the user's
        raise ServerDied(spec.name, "could not be loaded", _list_last_lines(error)) from error


def _list_last_lines(error: BaseException) -> list[str]:
    return KNOWN_SECRETS.mask("".join(traceback.format_exception(error))).splitlines()[-SHOWN_LINES:]


async def build_in_thread(spec: InlineSpec) -> Any:
    """Run `build` in a thread. If it hangs, the process can still exit, unlike with `asyncio.to_thread`."""
    loop = asyncio.get_running_loop()
    built: asyncio.Future[Any] = loop.create_future()

    def tell(error: BaseException | None, app: Any) -> None:
        if built.done():
            return
        if error is None:
            built.set_result(app)
        else:
            built.set_exception(error)

    def run() -> None:
        error = None
        app = None
        try:
            app = build(spec)
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # too late: the loop is gone
            loop.call_soon_threadsafe(tell, error, app)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=f"build {spec.name}", daemon=True).start()
    return await built


@contextlib.asynccontextmanager
async def serve_inline(
    servers: Sequence[InlineServer],
    on_ready: Callable[[str], None] = lambda name: None,
    last_lines: Callable[[str], Sequence[str]] = lambda name: (),
    access: AccessRules = OWN_NAMES_ONLY,
) -> AsyncIterator[None]:
    """Serve all of them while the context lasts; `on_ready` gets the name of each that is up.

    `last_lines` gives what a server has printed, to explain why it could not start. `access` says who may call them.
    """
    sockets = _bind_all(servers)
    apps = [registry.NamedApp(spec.app, spec.name) for spec in servers]
    running = [
        listening.uvicorn_server(app, spec.host, spec.port, access, quiet_signals=True)
        for spec, app in zip(servers, apps, strict=True)
    ]
    tasks = dict[str, asyncio.Task[None]]()
    for spec, server, sock in zip(servers, running, sockets, strict=True):
        with registry.work_for(spec.name):
            tasks[spec.name] = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        await _wait_for_all(dict(zip(tasks, running, strict=True)), tasks, on_ready, last_lines)
        for spec, app in zip(servers, apps, strict=True):
            registry.host_app(spec.host, spec.port, app)
        yield
    finally:
        for spec in servers:
            registry.unhost_app(spec.host, spec.port)
        await _stop(dict(zip(tasks.values(), running, strict=True)))
        for sock in sockets:
            sock.close()


def _bind_all(servers: Sequence[InlineServer]) -> list[Any]:
    with contextlib.ExitStack() as undo:
        sockets = [undo.enter_context(spec.sock or binding.bind(spec.host, spec.port, spec.name)) for spec in servers]
        undo.pop_all()
    return sockets


async def _wait_for_all(
    servers: dict[str, uvicorn.Server],
    tasks: dict[str, asyncio.Task[None]],
    on_ready: Callable[[str], None],
    last_lines: Callable[[str], Sequence[str]],
) -> None:
    async def ready(name: str, server: uvicorn.Server) -> None:
        assert isinstance(server, listening.OwnedServer)
        await server.ready.wait()
        on_ready(name)

    everything: asyncio.Future[Any] = asyncio.gather(*(ready(*item) for item in servers.items()))
    try:
        await asyncio.wait({everything, *tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
        for name, task in tasks.items():
            if task.done():
                task.result()
                raise ServerDied(name, "could not start", last_lines(name))
        everything.result()
    finally:
        everything.cancel()


async def _stop(serving: dict[asyncio.Task[None], listening.AnnouncingServer]) -> None:
    for task, server in serving.items():
        server.should_exit = True
        if not server.started:
            task.cancel()  # it waits for the app's start-up, which may never end
    if serving:
        await asyncio.wait(serving, timeout=_STOP_GRACE_S)
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
