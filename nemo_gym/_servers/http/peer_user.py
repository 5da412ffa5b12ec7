# SPDX-License-Identifier: Apache-2.0
"""Which user of this machine is at the other end of a connection: the kernel is asked about the socket there.

It is asked over netlink (`sock_diag`), in about 20 µs however many sockets there are; where that is not available, the
tables of `/proc/net` are read. Other systems than Linux, and sockets of other network namespaces, stay unknown.
"""

import ipaddress
import os
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import Response

from nemo_gym._servers.http.guard import json_reply

_ROOT = 0
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_LISTEN = 10
_LOOPBACK_INTERFACE = 1
_NO_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2 before its socket id: family, protocol, extensions, states
_PORTS = struct.Struct("!HH")
_REST_OF_ID = struct.Struct("=III")  # interface and cookie
_REPLY = struct.Struct("=xB2x48x12xII")  # inet_diag_msg: state, then uid and inode behind the socket id
_PROC_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_CLOSED = "its sender has closed the connection, so that its user can't be known"

Address = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


@dataclass(frozen=True)
class PeerSocket:
    """The socket at the other end."""

    uid: int
    inode: int
    """0 if its process has closed it. Many kernels show such a socket as root's."""


def refuse_other_user(connection: socket.socket) -> Response | None:
    """Return the answer to all requests of a connection whose other end is neither root's nor this process's user's.

    Return None if they may pass, also where the user can't be known.
    """
    try:
        found = find_peer_socket(_read_address(connection.getsockname()), _read_address(connection.getpeername()))
        if found is None:
            connection.getpeername()  # raises if the socket was not found because the connection is over
            return None
    except OSError:
        return _refuse(_CLOSED)
    if found.uid == _ROOT and found.inode == 0:
        return _refuse(_CLOSED)
    if found.uid in (_ROOT, os.getuid(), os.geteuid()):
        return None
    return _refuse(f"it comes from another user of this machine (uid {found.uid})")


def find_peer_socket(own: Address, peer: Address) -> PeerSocket | None:
    """Return the socket at `peer` that is connected to `own`; None if it is unknown."""
    if sys.platform != "linux":
        return None
    for find in (find_by_netlink, find_in_proc):
        try:
            found = find(own, peer)
        except OSError:  # not on this kernel, or not in this sandbox
            continue
        if found is not None:
            return found
    return None


def find_by_netlink(own: Address, peer: Address) -> PeerSocket | None:
    """Ask the kernel for one socket."""
    family = socket.AF_INET if peer[0].version == 4 else socket.AF_INET6
    request = (
        _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _NO_COOKIE)
        + _PORTS.pack(peer[1], own[1])
        + peer[0].packed.ljust(16, b"\0")
        + own[0].packed.ljust(16, b"\0")
        # With the interface, sockets that are bound to it (SO_BINDTODEVICE) are found as well as others.
        + _REST_OF_ID.pack(_LOOPBACK_INTERFACE, _NO_COOKIE, _NO_COOKIE)
    )
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.setblocking(False)  # the answer is there when the request has been sent
        kernel.send(header + request)
        reply = kernel.recv(4096)
    _, kind, *_ = _HEADER.unpack_from(reply)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    state, uid, inode = _REPLY.unpack_from(reply, _HEADER.size)
    # Where no connection matches, the kernel answers with whoever listens on the port.
    return None if state == _LISTEN else PeerSocket(uid, inode)


def find_in_proc(own: Address, peer: Address) -> PeerSocket | None:
    """Search the kernel's lists of all sockets."""
    searched = [(_PROC_TABLES[peer[0].version], _write_as_proc(peer), _write_as_proc(own))]
    if peer[0].version == 4:  # a client may have opened an IPv6 socket for it
        local, remote = (
            _write_as_proc((ipaddress.IPv6Address(f"::ffff:{address}"), port)) for address, port in (peer, own)
        )
        searched.append((_PROC_TABLES[6], local, remote))
    for table, local, remote in searched:
        for line in table.read_text().splitlines():
            if local in line:
                fields = line.split()
                if fields[1:3] == [local, remote]:
                    return PeerSocket(int(fields[7]), int(fields[9]))
    return None


def _write_as_proc(address: Address) -> str:
    words = struct.unpack(f"={len(address[0].packed) // 4}I", address[0].packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def _read_address(name: tuple[Any, ...]) -> Address:
    address = ipaddress.ip_address(name[0].partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address, name[1]


def _refuse(reason: str) -> Response:
    said = (
        f"the request was refused: {reason}.\n"
        f"this server acts with the keys of its own user (uid {os.getuid()}), and answers only that user and root.\n"
        "hint: `++allow_other_users=true` lets in all users of this machine; with an `access_token` in env.yaml, "
        "those who have it"
    )
    return json_reply(403, {"detail": said})
