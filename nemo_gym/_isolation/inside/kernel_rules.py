# SPDX-License-Identifier: Apache-2.0
"""What the kernel can take from a process, and from all that it starts, irrevocably.

Limits, another user, fewer capabilities, rules for files (Landlock) where bubblewrap does not hide them, and a filter
on system calls (seccomp). Linux only; not every kernel has Landlock, and the filter is for x86-64 and arm64.
"""

import ctypes
import errno
import fcntl
import functools
import itertools
import os
import resource
import signal
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
_CAPABILITIES_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def guard_against_children() -> None:
    """Adopt every descendant that loses its parent, and keep processes of the same user out of our memory."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)


def limit(kind: int, value: int) -> None:
    """Set a limit, or keep the lower one that exists."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def confine(uid: int | None, gid: int | None, *, memory_bytes: int, max_tasks: int, max_file_bytes: int) -> None:
    """In a new child: apply limits, become another user, die with the parent, and gain no rights by executing programs.

    `max_tasks` limits all processes and threads of the user, because that is what the kernel counts.
    """
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, max_file_bytes)
    # Not the address space, of which runtimes reserve far more than they use: this counts writable memory.
    limit(resource.RLIMIT_DATA, memory_bytes)
    limit(resource.RLIMIT_NPROC, max_tasks)
    become(uid, gid)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which resets it
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def become(uid: int | None, gid: int | None) -> None:
    """Become another user, with no group but `gid`; None keeps the user."""
    if uid is not None and gid is not None:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """As root: keep access to root's files, but none of its power over the machine."""
    for capability in itertools.count():
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    if _libc.capset(struct.pack("Ii", _CAPABILITIES_VERSION_3, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def seal(file_rules: "FileRules | None", *, has_own_pids: bool) -> None:
    """Apply the rules for files and the filter on system calls; without PIDs of our own, allow no signals to others."""
    if file_rules is not None and _libc.syscall(_LANDLOCK_RESTRICT, file_rules.fd, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    keeps_signals = has_own_pids or (file_rules is not None and file_rules.scope_signals)
    if not filter_calls(own_signals_only=not keeps_signals) and not has_own_pids:
        raise OSError(errno.ENOSYS, "there is no filter on system calls, which alone keeps code from the network here")


# Rules for files (Landlock)
# They also keep code from inspecting processes with fewer rules and, on newer kernels, from TCP and from signals and
# abstract sockets to other processes.

_LANDLOCK_CREATE = 444
_LANDLOCK_ADD = 445
_LANDLOCK_RESTRICT = 446
_VERSION_QUESTION = 1
_PATH_BENEATH = 1
_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_MAKE_CHARACTER_DEVICE = 1 << 6
_MAKE_BLOCK_DEVICE = 1 << 11
_USE_DEVICE = 1 << 15
_ALL_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_NOW = (1 << 16) - 1
_BIND_AND_CONNECT = 0b11
_SOCKETS_AND_SIGNALS = 0b11
_FIRST_WITH_NETWORK = 4
_FIRST_WITH_SCOPES = 6
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_FIRST_FD = 64


class FileRules(NamedTuple):
    """Rules that are ready to be applied."""

    fd: int
    scope_signals: bool
    """Whether processes under these rules can signal only each other."""


def make_file_rules(readable: Iterable[str], writable: Iterable[str]) -> FileRules | None:
    """Make rules that let code read, or read and write, only these paths; return None without Landlock."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, _VERSION_QUESTION)
    if version < 1:
        return None
    everything = _ALL_OF_VERSION.get(version, _ALL_NOW)
    attributes = struct.pack("Q", everything)
    if version >= _FIRST_WITH_NETWORK:
        attributes += struct.pack("Q", _BIND_AND_CONNECT)
    if version >= _FIRST_WITH_SCOPES:
        attributes += struct.pack("Q", _SOCKETS_AND_SIGNALS)
    rules = int(_libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0))
    if rules < 0:
        return None
    for path in readable:
        _allow_path(rules, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in writable:
        _allow_path(rules, path, everything & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE))
    for path in _DEVICES:
        _allow_path(rules, path, (_READ_FILE | _WRITE_FILE | _USE_DEVICE) & everything)
    # Above the numbers that children give to their streams.
    fd = fcntl.fcntl(rules, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    os.close(rules)
    return FileRules(fd, scope_signals=version >= _FIRST_WITH_SCOPES)


def _allow_path(rules: int, path: str, access: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _EXECUTE | _READ_FILE | _WRITE_FILE | _USE_DEVICE
        _libc.syscall(_LANDLOCK_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", access, beneath), 0)
    finally:
        os.close(beneath)


# A filter on system calls (seccomp): no sockets, no namespaces, no looking into other processes, no changing them
# It reduces the attack surface of the kernel, and it protects the watching process where both have the same user, who
# could lower its limits. Without bubblewrap it is also what takes the network away.

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_NUMBER = 0
_ARCHITECTURE = 4
_ARGUMENTS = 16
_X32_CALLS = 0x40000000
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

# name: (x86-64, arm64). Shared memory and queues would outlive the processes that make them.
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
# Without a PID namespace, processes of others can be signaled.
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131)}
_SIGNALS_TO_ANYONE = {
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
# These change the process that the first argument names; a program may change itself.
_SCHEDULING = {
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
_PRLIMIT = (302, 261)
# Here the second argument names it, and the first says what it names: this value means "all processes of a user".
_PRIORITIES = {"setpriority": ((141, 140), 2), "ioprio_set": ((251, 30), 3)}
# The second argument says what to do. Through the owner of a file, the kernel can be made to send any signal to any
# process of the user; a lease makes others wait for a file that they open; a terminal could be typed into.
_REQUESTS = {
    "fcntl: F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE": ((72, 25), (8, 10, 15, 1024)),
    "ioctl: FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX": ((16, 29), (0x8901, 0x8902, 0x5412, 0x541C)),
}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def prepare_filter() -> None:
    """Build the part of the filter that all children share, so that they need not."""
    if known := _ARCHITECTURES.get(os.uname().machine):
        _build_common_part(*known)


def filter_calls(*, own_signals_only: bool) -> bool:
    """Deny the calls to this process and all it starts; return False where that is impossible."""
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None:
        return False
    code = _build_common_part(*known) + _build_process_part(known[0], os.getpid(), own_signals_only) + _ACCEPT
    program = _Program(len(code) // 8, code)
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def build_namespace_filter() -> bytes | None:
    """Return a filter that denies new namespaces, for bubblewrap to apply; None where it is not known how."""
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None:
        return None
    column, architecture = known
    parts = _begin_filter(architecture)
    for name in ("unshare", "setns"):
        parts += _for_call(_DENIED[name][column], [_refuse(errno.EPERM)])
    return b"".join([*parts, *_deny_new_namespaces(column), _ACCEPT])


@functools.cache  # filled in the trusted process, of which children are copies
def _build_common_part(column: int, architecture: int) -> bytes:
    """Build the first part of the filter program; a call that it does not decide about goes on to the next part."""
    parts = _begin_filter(architecture)
    for numbers in _DENIED.values():
        parts += _for_call(numbers[column], [_refuse(errno.EPERM)])
    parts += _deny_new_namespaces(column)
    for numbers, requests in _REQUESTS.values():
        parts += _for_call(numbers[column], _if_among(1, requests, _refuse(errno.EPERM), _ACCEPT))
    return b"".join(parts)


def _begin_filter(architecture: int) -> list[bytes]:
    """Refuse the calls of other architectures, and load the number of the call."""
    return [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, 1, 0),
        _refuse(errno.EPERM),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32_CALLS, 0, 1),
        _refuse(errno.EPERM),
    ]


def _deny_new_namespaces(column: int) -> list[bytes]:
    # The flags of the newer call are in memory, which a filter cannot read; libraries fall back on the older one.
    newer = _for_call(_CLONE3[column], [_refuse(errno.ENOSYS)])
    new_namespace = [_load(0), _step(_ANY_BIT, _NAMESPACE_FLAGS, 0, 1), _refuse(errno.EPERM), _ACCEPT]
    return [*newer, *_for_call(_CLONE[column], new_namespace)]


def _build_process_part(column: int, own_pid: int, own_signals_only: bool) -> bytes:
    """Build the part that lets a process change only itself, named by its number or by 0."""
    itself = (own_pid, 0)
    parts: list[bytes] = []
    for numbers in _SCHEDULING.values():
        parts += _for_call(numbers[column], _if_among(0, itself, _ACCEPT, _refuse(errno.EPERM)))
    for numbers, all_of_user in _PRIORITIES.values():
        is_of_user = [_load(0), _step(_EQUAL, all_of_user, 0, 1), _refuse(errno.EPERM)]
        parts += _for_call(numbers[column], [*is_of_user, *_if_among(1, itself, _ACCEPT, _refuse(errno.EPERM))])
    # Without new limits, it only reads the current ones.
    asks = [_load(2), _step(_EQUAL, 0, 0, 3), _load(2, upper=True), _step(_EQUAL, 0, 0, 1), _ACCEPT]
    parts += _for_call(_PRLIMIT[column], [*asks, *_if_among(0, itself, _ACCEPT, _refuse(errno.EPERM))])
    if own_signals_only:
        for numbers in _SIGNALS_TO_ANYONE.values():
            parts += _for_call(numbers[column], [_refuse(errno.EPERM)])
        for numbers in _SIGNALS.values():
            parts += _for_call(numbers[column], _if_among(0, itself, _ACCEPT, _refuse(errno.EPERM)))
    return b"".join(parts)


def _for_call(number: int, steps: list[bytes]) -> list[bytes]:
    """Return `steps` for one call; they must decide, because they may load something other than its number."""
    return [_step(_EQUAL, number, 0, len(steps)), *steps]


def _if_among(argument: int, values: Sequence[int], then: bytes, otherwise: bytes) -> list[bytes]:
    """Decide by whether an argument, of which the kernel uses 32 bits, is one of `values`."""
    tests = [_step(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [_load(argument), *tests, otherwise, then]


def _load(argument: int, *, upper: bool = False) -> bytes:
    return _step(_LOAD, _ARGUMENTS + 8 * argument + 4 * upper)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


_ACCEPT = _step(_RETURN, _ALLOW)
