# SPDX-License-Identifier: Apache-2.0
"""Sockets to serve on; who finds a port taken is told by whom, where that can be found out."""

import contextlib
import errno
import socket

from nemo_gym._config.ports import take_reserved
from nemo_gym.errors import PortInUseError

BACKLOG = 16_384


def bind(host: str, port: int, server_name: str) -> socket.socket:
    """A socket bound to `host:port`; the error names the server and, where it can be found out, who has the port."""
    sock = take_reserved(host, port)
    try:
        if sock is None:
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
        # From here on clients wait in the queue instead of being refused while the server starts.
        sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
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
