# SPDX-License-Identifier: Apache-2.0
"""Which files code may see and change, as rules that the kernel keeps (Landlock), for where there is no bubblewrap.

They also keep code from looking into processes that have fewer rules than it has. Not every kernel knows them.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_QUESTION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_NOW = (1 << 16) - 1
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_FIRST_FD = 64

_libc = ctypes.CDLL(None, use_errno=True)


def new_rules(readable: Iterable[str], writable: Iterable[str]) -> int | None:
    """Rules by which nothing but these paths can be read, or read and written; None where there are no such rules."""
    version = _libc.syscall(_CREATE, None, 0, _VERSION_QUESTION)
    if version < 1:
        return None
    everything = _ALL_OF_VERSION.get(version, _ALL_NOW)
    attributes = struct.pack("Q", everything)
    rules = int(_libc.syscall(_CREATE, attributes, len(attributes), 0))
    if rules < 0:
        return None
    for path in readable:
        _allow(rules, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(rules, path, everything)
    for path in _DEVICES:
        _allow(rules, path, _READ_FILE | _WRITE_FILE)
    # Out of the way of the numbers that children give to their streams.
    return fcntl.fcntl(rules, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)


def obey(rules: int) -> None:
    """Keep to the rules from now on, in this process and all it starts."""
    if _libc.syscall(_RESTRICT, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


def _allow(rules: int, path: str, access: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _EXECUTE | _READ_FILE | _WRITE_FILE
        _libc.syscall(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", access, beneath), 0)
    finally:
        os.close(beneath)
