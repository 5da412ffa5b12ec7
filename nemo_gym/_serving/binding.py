# SPDX-License-Identifier: Apache-2.0
"""Sockets and uvicorn: bind first, with an error that says who has the port, then serve on what was bound."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from nemo_gym._config.ports import take_reserved
from nemo_gym.errors import PortInUseError

KEEP_ALIVE_S = 30
BACKLOG = 16_384


def bind(host: str, port: int, server_name: str) -> socket.socket:
    """A socket bound to `host:port`; the error names the server and, where it can be found out, who has the port."""
    sock = take_reserved(host, port)
    if sock is not None:
        sock.listen(BACKLOG)
        return sock
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        # From here on clients wait in the queue instead of being refused while the server starts.
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"server {server_name!r} cannot listen on {host}:{port}: the port is taken{_holder(port)}.\n"
                f"hint: stop the other process, or give {server_name!r} another `port`"
            ) from error
        raise
    return sock


def _holder(port: int) -> str:
    import psutil  # 20 ms, and only needed to explain a failure

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                return f" by {psutil.Process(connection.pid).name()!r} (pid {connection.pid})" if connection.pid else ""
    return ""


def uvicorn_server(app: Any, host: str, port: int, *, quiet_signals: bool = False) -> "AnnouncingServer":
    """A uvicorn server for `app`, tuned for many short JSON calls."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="auto",
        access_log=False,
        log_level="warning",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    return OwnedServer(config) if quiet_signals else AnnouncingServer(config)


class AnnouncingServer(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_ready: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.on_ready is not None:
            self.on_ready()


class OwnedServer(AnnouncingServer):
    """A server whose owner handles signals and waits for it to be ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.on_ready = self.ready.set

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
