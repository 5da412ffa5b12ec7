# SPDX-License-Identifier: Apache-2.0
"""Free TCP ports for servers whose config does not name one.

A port that is reserved stays bound until the server takes the socket over, so that no other launch on the machine can
get it in between. A port that is only found is free now and promises nothing.
"""

import random
import socket
from collections.abc import Callable, Collection

_reserved: dict[tuple[str, int], socket.socket] = {}


def free_port(low: int, high: int, taken: Collection[int], tries: int) -> int:
    """A port of `low`..`high`, not in `taken`, that nothing listens on."""

    def probe(port: int) -> bool:
        sock = _bound("", port)
        if sock is not None:
            sock.close()
        return sock is not None

    return _first(probe, low, high, taken, tries)


def reserve_port(host: str, low: int, high: int, taken: Collection[int], tries: int) -> int:
    """As `free_port`, and keep it for this process: `take_reserved` hands the bound socket over."""

    def reserve(port: int) -> bool:
        sock = _bound(host, port)
        if sock is not None:
            _reserved[host, port] = sock
        return sock is not None

    return _first(reserve, low, high, taken, tries)


def take_reserved(host: str, port: int) -> socket.socket | None:
    """The bound socket of a reserved port; the caller owns it from now on."""
    return _reserved.pop((host, port), None)


def _first(usable: Callable[[int], bool], low: int, high: int, taken: Collection[int], tries: int) -> int:
    candidates = [port for port in range(low, high + 1) if port not in taken]
    for port in random.sample(candidates, min(tries, len(candidates))):
        if usable(port):
            return port
    raise RuntimeError(
        f"found no free port in {low}..{high} after {min(tries, len(candidates))} tries "
        f"({len(taken)} ports of the config are taken).\n"
        "hint: widen the range with `++port_range_low=<port>` and `++port_range_high=<port>`"
    )


def _bound(host: str, port: int) -> socket.socket | None:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    # No SO_REUSEADDR: with it, Linux lets two sockets have one port until one of them listens.
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        return None
    return sock
