# SPDX-License-Identifier: Apache-2.0
"""A filter on system calls (seccomp): no sockets, no namespaces, no looking into or at other processes.

The sandbox holds without it; it makes the kernel's surface smaller, and where there is no bubblewrap it is what takes
the network away. Known for x86-64 and arm64.
"""

import ctypes
import errno
import functools
import os
import struct

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32_CALLS = 0x40000000
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

# name: (x86-64, arm64). Those of shared memory and queues would outlive the processes that make them.
_DENIED = {
    "socket": (41, 198),
    "connect": (42, 203),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
# Where processes of others can be seen, they can be signalled too.
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131)}
_SIGNALS_TO_ANYONE = {
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def prepare_filter() -> None:
    """Work the filter out, so that children need not."""
    if known := _ARCHITECTURES.get(os.uname().machine):
        _filter(*known, None)


def filter_calls(*, own_signals_only: bool) -> bool:
    """Take the calls away from this process and all it starts; False where that cannot be done."""
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None:
        return False
    code = _filter(*known, os.getpid() if own_signals_only else None)
    program = _Program(len(code) // 8, code)
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


@functools.cache  # worth it only in the trusted process, of which children have a copy
def _filter(column: int, architecture: int, own_pid: int | None) -> bytes:
    """The filter as a program for the kernel: each call is looked up, and allowed if it is not found."""
    denied = list(_DENIED.values())
    if own_pid is not None:
        denied += _SIGNALS_TO_ANYONE.values()
    parts = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _refuse(errno.EPERM)]
    parts += [_step(_LOAD, _NUMBER), _step(_AT_LEAST, _X32_CALLS, 0, 1), _refuse(errno.EPERM)]
    for numbers in denied:
        parts += [_step(_EQUAL, numbers[column], 0, 1), _refuse(errno.EPERM)]
    # Its flags are in memory, where a filter cannot look; libraries fall back on the older call.
    parts += [_step(_EQUAL, _CLONE3[column], 0, 1), _refuse(errno.ENOSYS)]
    parts += [_step(_EQUAL, _CLONE[column], 0, 4), _step(_LOAD, _FIRST_ARGUMENT)]
    parts += [_step(_ANY_BIT, _NAMESPACE_FLAGS, 0, 1), _refuse(errno.EPERM), _step(_RETURN, _ALLOW)]
    for numbers in _SIGNALS.values() if own_pid is not None else ():
        # To itself, or (0) to its own group.
        parts += [_step(_EQUAL, numbers[column], 0, 5), _step(_LOAD, _FIRST_ARGUMENT)]
        parts += [_step(_EQUAL, own_pid or 0, 2, 0), _step(_EQUAL, 0, 1, 0)]
        parts += [_refuse(errno.EPERM), _step(_RETURN, _ALLOW)]
    return b"".join([*parts, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)
