# SPDX-License-Identifier: Apache-2.0
"""Free TCP ports for servers whose config does not name one.

A reserved port stays bound until the server takes the socket over, so that no other launch on the machine can get it in
between. `find_free_port` only finds a port that is free at the moment.
"""

import errno
import random
import socket
from collections.abc import Callable, Collection

_reserved: dict[tuple[str, int], socket.socket] = {}


def find_free_port(low: int, high: int, taken: Collection[int], tries: int) -> int:
    """Return a port in `low`..`high`, not in `taken`, that is free."""

    def is_free(port: int) -> bool:
        try:
            bind_alone("", port).close()
        except OSError:
            return False
        return True

    return _pick(is_free, low, high, taken, tries)


def reserve_port(host: str, low: int, high: int, taken: Collection[int], tries: int) -> int:
    """Return a port as `find_free_port` does, and hold it until `take_reserved` asks for its socket."""
    return _pick(lambda port: reserve(host, port), low, high, taken, tries)


def reserve(host: str, port: int) -> bool:
    """Hold `port` as `reserve_port` does; return False if it is in use."""
    try:
        _reserved[host, port] = bind_alone(host, port)
    except OSError:
        return False
    return True


def take_reserved(host: str, port: int) -> socket.socket | None:
    """Return the bound socket of a reserved port and hand it over to the caller."""
    return _reserved.pop((host, port), None)


def bind_alone(host: str, port: int) -> socket.socket:
    """Bind a socket that does not let others share its port.

    With SO_REUSEADDR on both, Linux gives one port to two sockets until one of them listens. Without it, lingering
    connections of an earlier run block the port. So it is set only to bind a port with lingering connections, and again
    when the socket is about to listen.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        try:
            sock.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        sock.close()
        raise
    return sock


def _pick(usable: Callable[[int], bool], low: int, high: int, taken: Collection[int], tries: int) -> int:
    candidates = [port for port in range(low, high + 1) if port not in taken]
    for port in random.sample(candidates, min(tries, len(candidates))):
        if usable(port):
            return port
    raise RuntimeError(
        f"found no free port in {low}..{high} after {min(tries, len(candidates))} tries "
        f"({len(taken)} ports of the config are taken).\n"
        "hint: widen the range with `++port_range_low=<port>` and `++port_range_high=<port>`"
    )
