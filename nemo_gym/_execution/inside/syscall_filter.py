# SPDX-License-Identifier: Apache-2.0
"""A filter on system calls (seccomp): no sockets, no namespaces, no looking into other processes, no changing them.

It makes the kernel's surface smaller, and it keeps code from the process that watches it where both have one user: the
kernel lets a user lower the limits of all that is theirs. Where there is no bubblewrap it is also what takes the
network away. Known for x86-64 and arm64.
"""

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Sequence

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
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
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
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
# These change a process, which the first argument names; a program may change itself.
_SCHEDULING = {
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
_PRLIMIT = (302, 261)
# Here the second argument names it, and the first says what it is: this value means "all that a user runs".
_PRIORITIES = {"setpriority": ((141, 140), 2), "ioprio_set": ((251, 30), 3)}
# The second argument says what is to be done. With an owner of a file the kernel can be made to send any signal to any
# process of the user; with a lease, others wait for a file that they open. A terminal could be typed into.
_REQUESTS = {
    "fcntl: F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE": ((72, 25), (8, 10, 15, 1024)),
    "ioctl: FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX": ((16, 29), (0x8901, 0x8902, 0x5412, 0x541C)),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def prepare_filter() -> None:
    """Work most of the filter out, so that children need not."""
    if known := _ARCHITECTURES.get(os.uname().machine):
        _equal_for_all(*known)


def filter_calls(*, own_signals_only: bool) -> bool:
    """Take the calls away from this process and all it starts; False where that cannot be done."""
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None:
        return False
    code = _equal_for_all(*known) + _about_processes(known[0], os.getpid(), own_signals_only) + _allow
    program = _Program(len(code) // 8, code)
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


@functools.cache  # worth it only in the trusted process, of which children have a copy
def _equal_for_all(column: int, architecture: int) -> bytes:
    """The first part of the program for the kernel, in which each call is looked up, and allowed if it is not found."""
    parts = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _refuse(errno.EPERM)]
    parts += [_step(_LOAD, _NUMBER), _step(_AT_LEAST, _X32_CALLS, 0, 1), _refuse(errno.EPERM)]
    for numbers in _DENIED.values():
        parts += _of_call(numbers[column], [_refuse(errno.EPERM)])
    # Its flags are in memory, where a filter cannot look; libraries fall back on the older call.
    parts += _of_call(_CLONE3[column], [_refuse(errno.ENOSYS)])
    new_namespace = [_load(0), _step(_ANY_BIT, _NAMESPACE_FLAGS, 0, 1), _refuse(errno.EPERM), _allow]
    parts += _of_call(_CLONE[column], new_namespace)
    for numbers, requests in _REQUESTS.values():
        parts += _of_call(numbers[column], _if_among(1, requests, _refuse(errno.EPERM), _allow))
    return b"".join(parts)


def _about_processes(column: int, own_pid: int, own_signals_only: bool) -> bytes:
    """The part that lets a process change itself, by its number or by 0, and no other."""
    itself = (own_pid, 0)
    parts: list[bytes] = []
    for numbers in _SCHEDULING.values():
        parts += _of_call(numbers[column], _if_among(0, itself, _allow, _refuse(errno.EPERM)))
    for numbers, all_of_user in _PRIORITIES.values():
        is_of_user = [_load(0), _step(_EQUAL, all_of_user, 0, 1), _refuse(errno.EPERM)]
        parts += _of_call(numbers[column], [*is_of_user, *_if_among(1, itself, _allow, _refuse(errno.EPERM))])
    # Without new limits, it only asks for those that there are.
    asks = [_load(2), _step(_EQUAL, 0, 0, 3), _load(2, upper=True), _step(_EQUAL, 0, 0, 1), _allow]
    parts += _of_call(_PRLIMIT[column], [*asks, *_if_among(0, itself, _allow, _refuse(errno.EPERM))])
    if own_signals_only:
        for numbers in _SIGNALS_TO_ANYONE.values():
            parts += _of_call(numbers[column], [_refuse(errno.EPERM)])
        for numbers in _SIGNALS.values():
            parts += _of_call(numbers[column], _if_among(0, itself, _allow, _refuse(errno.EPERM)))
    return b"".join(parts)


def _of_call(number: int, steps: list[bytes]) -> list[bytes]:
    """`steps` for one call; they must decide, because they may load something else than the number of the call."""
    return [_step(_EQUAL, number, 0, len(steps)), *steps]


def _if_among(argument: int, values: Sequence[int], then: bytes, otherwise: bytes) -> list[bytes]:
    """Decide by whether an argument, of which the kernel takes 32 bits, is one of `values`."""
    tests = [_step(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [_load(argument), *tests, otherwise, then]


def _load(argument: int, *, upper: bool = False) -> bytes:
    return _step(_LOAD, _ARGUMENTS + 8 * argument + 4 * upper)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


_allow = _step(_RETURN, _ALLOW)
