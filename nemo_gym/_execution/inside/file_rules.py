# SPDX-License-Identifier: Apache-2.0
"""Which files code may see and change, as rules that the kernel keeps (Landlock), for where there is no bubblewrap.

They also keep code from looking into processes that have fewer rules than it has and, where the kernel is new enough,
from TCP, and from signals and abstract sockets to others. Not every kernel knows them.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_QUESTION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE, _USE_DEVICE = 1 << 6, 1 << 11, 1 << 15
_ALL_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_NOW = (1 << 16) - 1
_BIND_AND_CONNECT, _SOCKETS_AND_SIGNALS = 0b11, 0b11
_FIRST_WITH_NETWORK, _FIRST_WITH_SCOPES = 4, 6
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_FIRST_FD = 64

_libc = ctypes.CDLL(None, use_errno=True)


class FileRules(NamedTuple):
    """Rules that are ready to be obeyed."""

    fd: int
    scope_signals: bool
    """Whether they keep signals among the processes that obey them."""


def make_rules(readable: Iterable[str], writable: Iterable[str]) -> FileRules | None:
    """Make rules by which code reads these paths, or reads and writes them, and no others; None without Landlock."""
    version = _libc.syscall(_CREATE, None, 0, _VERSION_QUESTION)
    if version < 1:
        return None
    everything = _ALL_OF_VERSION.get(version, _ALL_NOW)
    attributes = struct.pack("Q", everything)
    if version >= _FIRST_WITH_NETWORK:
        attributes += struct.pack("Q", _BIND_AND_CONNECT)
    if version >= _FIRST_WITH_SCOPES:
        attributes += struct.pack("Q", _SOCKETS_AND_SIGNALS)
    rules = int(_libc.syscall(_CREATE, attributes, len(attributes), 0))
    if rules < 0:
        return None
    for path in readable:
        _allow(rules, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(rules, path, everything & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE))
    for path in _DEVICES:
        _allow(rules, path, (_READ_FILE | _WRITE_FILE | _USE_DEVICE) & everything)
    # Out of the way of the numbers that children give to their streams.
    fd = fcntl.fcntl(rules, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    os.close(rules)
    return FileRules(fd, scope_signals=version >= _FIRST_WITH_SCOPES)


def obey(rules: FileRules) -> None:
    """Keep to the rules from now on, in this process and all it starts."""
    if _libc.syscall(_RESTRICT, rules.fd, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


def _allow(rules: int, path: str, access: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _EXECUTE | _READ_FILE | _WRITE_FILE | _USE_DEVICE
        _libc.syscall(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", access, beneath), 0)
    finally:
        os.close(beneath)
