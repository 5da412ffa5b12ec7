# SPDX-License-Identifier: Apache-2.0
"""uvicorn, set up for many short JSON calls, on sockets that are bound already.

Apart from `binding`, because uvicorn takes time to import and only who serves needs it.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from nemo_gym._serving.admission import AccessRules, Admission
from nemo_gym._serving.binding import BACKLOG, prepare_to_listen
from nemo_gym._serving.bounded_head import BoundedHeadProtocol

KEEP_ALIVE_S = 30
STARTUP_FAILURE = 3  # uvicorn's exit code for it, whose home moves between its versions


def uvicorn_server(
    app: Any, host: str, port: int, access: AccessRules, *, quiet_signals: bool = False
) -> "AnnouncingServer":
    """A uvicorn server for `app`, tuned for many short JSON calls, which `access` lets in."""
    config = uvicorn.Config(
        Admission(app, host, access),
        host=host,
        port=port,
        loop="uvloop",
        http=BoundedHeadProtocol,
        ws="none",
        lifespan="auto",
        access_log=False,
        log_level="warning",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    return OwnedServer(config) if quiet_signals else AnnouncingServer(config)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    # Calls that a stopping server cuts off are no errors: uvicorn would print a traceback for each of them.
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class AnnouncingServer(uvicorn.Server):
    """A server that listens once its app has started, and says so."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_ready: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        start_app = self.lifespan.startup

        async def start_app_then_listen() -> None:
            await start_app()
            for sock in sockets or ():
                prepare_to_listen(sock)

        self.lifespan.startup = start_app_then_listen
        try:
            await super().startup(sockets)
        except SystemExit:  # the app failed to start; others in this process are none of its business
            self.should_exit = True
        if self.started and self.on_ready is not None:
            self.on_ready()


def serve_in_thread(server: AnnouncingServer, sock: socket.socket, name: str) -> threading.Thread:
    """Serve in a daemon thread; return when the server listens, or could not start."""
    is_decided = threading.Event()

    def serve() -> None:
        try:
            server.run(sockets=[sock])
        finally:
            is_decided.set()

    server.on_ready = is_decided.set
    thread = threading.Thread(target=serve, name=name, daemon=True)
    thread.start()
    is_decided.wait()
    return thread


class OwnedServer(AnnouncingServer):
    """A server whose owner handles signals and waits for it to be ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.on_ready = self.ready.set

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
