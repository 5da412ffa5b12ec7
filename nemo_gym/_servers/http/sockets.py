# SPDX-License-Identifier: Apache-2.0
"""Sockets to serve on. A port refuses clients until a server listens; who has a taken one is named in the error."""

import contextlib
import errno
import socket

from nemo_gym._config.port_reservation import bind_alone, take_reserved
from nemo_gym.errors import PortInUseError

BACKLOG = 16_384


def bind(host: str, port: int, server_name: str) -> socket.socket:
    """Return a socket bound to `host:port`, which nobody else can bind and which refuses clients until it listens.

    The error names the server and, where it can be found out, who has the port.
    """
    sock = take_reserved(host, port)
    if sock is not None:
        return sock
    try:
        return bind_alone(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"server {server_name!r} cannot listen on {host}:{port}: the port is taken{_name_holder(port)}.\n"
                f"hint: stop the other process, or give {server_name!r} another `port`"
            ) from error
        raise


def prepare_to_listen(sock: socket.socket) -> None:
    """Let `sock` listen although connections of an earlier run may linger on its port."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _name_holder(port: int) -> str:
    import psutil  # 20 ms, and only needed to explain a failure

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid:
                    return f" by {psutil.Process(connection.pid).name()!r} (pid {connection.pid})"
                return ""
    return ""
