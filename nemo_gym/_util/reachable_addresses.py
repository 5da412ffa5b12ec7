# SPDX-License-Identifier: Apache-2.0
"""The address under which others find what listens on this machine, and whether there are others."""

import ipaddress
import socket

_EVERY_ADDRESS = ("", "0.0.0.0", "::")
# Nobody has this address (RFC 5737), and nothing is sent to it: the system only says from where it would send.
_SOMEWHERE_ELSE = ("192.0.2.1", 9)


def reachable_host(host: str) -> str:
    """Return an address that works from elsewhere for one to listen on: for `0.0.0.0`, that of this machine."""
    if host not in _EVERY_ADDRESS:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE_ELSE)
            return str(probe.getsockname()[0])
        except OSError:  # no network
            return socket.gethostname()


def reachable_url(host: str, port: int) -> str:
    """Return the URL of what listens at `host` and `port`, as others would write it."""
    named = reachable_host(host)
    return f"http://[{named}]:{port}" if ":" in named else f"http://{named}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens at `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
