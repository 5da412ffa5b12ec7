# SPDX-License-Identifier: Apache-2.0
"""The rules for untrusted code, and how to find and remove all traces of it."""

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import time
from dataclasses import dataclass

from nemo_gym._isolation.inside import kernel_rules
from nemo_gym._isolation.inside.kernel_rules import PR_SET_DUMPABLE, FileRules, limit, prctl
from nemo_gym._isolation.inside.process_tree import (
    find_descendants,
    find_excess,
    kill_descendants,
    measure_resident_bytes,
    reap_all,
    send_signal,
)

KILL_PATIENCE_S = 5.0
WIPE_PATIENCE_S = 5.0
_RLIMIT_KINDS = 16
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
_IOPRIO_WHO_PROCESS = 1
RESTORED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Rules:
    """How a sandbox is set up, and what its code may use."""

    has_own_pids: bool
    """Whether this is the first process of a PID namespace, so that all others in it belong to the code."""
    uid: int | None
    """The user to become, if we may; nobody else has this id, so limits on it are exact."""
    other_tasks: int
    """How many processes and threads of the user exist already, if the kernel counts them too."""
    folders: tuple[str, ...]
    """Where code may write; the first is its working folder."""
    readable: tuple[str, ...]
    """What else code may see, where the whole machine would be visible."""
    memory_bytes: int
    max_processes: int
    max_file_bytes: int
    max_open_files: int
    max_output_bytes: int


@dataclass(frozen=True)
class Baseline:
    """What the trusted process prepares for its children, and its own state before the first of them."""

    file_rules: FileRules | None
    """The kernel's rules for files, if it has them and bubblewrap does not hide files."""
    resident_bytes: int
    """Its own memory: every child begins with a copy, which costs nothing."""
    own_limits: tuple[object, ...]
    """Its own limits and priority, which every child inherits."""


def prepare(rules: Rules) -> Baseline:
    """In the trusted process: get out of reach of its children, and prepare to adopt what they leave behind."""
    if rules.has_own_pids and os.getpid() != 1:
        raise SystemExit("not the first process of a PID namespace: killing all processes would go too far")
    kernel_rules.guard_against_children()
    _open_folders(rules)
    kernel_rules.prepare_filter()
    file_rules = None
    if not rules.has_own_pids:
        file_rules = kernel_rules.make_file_rules(rules.readable, rules.folders)
    return Baseline(file_rules, measure_resident_bytes(os.getpid()), _read_own_limits())


def is_unchanged(baseline: Baseline) -> bool:
    """Return whether the trusted process still has its limits and priority, which its user could have lowered."""
    return _read_own_limits() == baseline.own_limits


def confine(rules: Rules, baseline: Baseline) -> None:
    """In a new child: apply limits and give up rights, irrevocably."""
    limit(resource.RLIMIT_MSGQUEUE, 0)
    limit(resource.RLIMIT_NOFILE, rules.max_open_files)
    kernel_rules.confine(
        rules.uid,
        rules.uid,
        memory_bytes=rules.memory_bytes,
        max_tasks=rules.other_tasks + rules.max_processes,
        max_file_bytes=rules.max_file_bytes,
    )
    prctl(PR_SET_DUMPABLE, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
        score.write(b"1000")  # the first to be killed if the machine runs out of memory
    for number in RESTORED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kernel_rules.seal(baseline.file_rules, has_own_pids=rules.has_own_pids)


def hide_from_others() -> None:
    """In a confined child: keep other processes of the same user out of our memory and file descriptors."""
    prctl(PR_SET_DUMPABLE, 0)


def kill_all(rules: Rules) -> bool:
    """Kill and reap every process of the code; return False if some are left."""
    if not rules.has_own_pids:
        return kill_descendants(KILL_PATIENCE_S) == 0
    give_up = time.monotonic() + KILL_PATIENCE_S
    while time.monotonic() < give_up:
        signal_all(rules, signal.SIGKILL)
        if reap_all():
            return True
        time.sleep(0.001)
    return False


def signal_all(rules: Rules, number: signal.Signals) -> None:
    """Send a signal to every process of the code."""
    if rules.has_own_pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)
        return
    for pid in find_processes(rules):
        send_signal(pid, number)


def find_exceeded_limit(rules: Rules, baseline: Baseline) -> str | None:
    """Return the status of a run whose processes together exceed a limit, if they do."""
    excess = find_excess(
        find_processes(rules),
        max_processes=rules.max_processes,
        memory_bytes=rules.memory_bytes,
        shared_bytes=baseline.resident_bytes,
    )
    return "killed" if excess == "processes" else excess


def measure_waiting(pid: int) -> float:
    """Return how many seconds a process was ready to run while others had the processor."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as schedstat:
            return int(schedstat.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def wipe(rules: Rules) -> bool:
    """Empty the folders that code may write to; return False if something is left in them."""
    _open_folders(rules)  # where code runs as our user, it may have closed them
    if not any(map(os.listdir, rules.folders)):
        return True
    wiper = os.fork()
    if wiper == 0:
        # As the user who owns the files: we may have no right to remove them ourselves.
        try:
            kernel_rules.become(rules.uid, rules.uid)
            signal.alarm(int(WIPE_PATIENCE_S))
            for folder in rules.folders:
                empty_folder(folder)
        finally:
            os._exit(0)
    os.waitpid(wiper, 0)
    return not any(map(os.listdir, rules.folders))


def remove_folders(rules: Rules) -> None:
    """At the end: remove the folders, unless they are in memory and vanish by themselves."""
    if not rules.has_own_pids and wipe(rules):
        for folder in rules.folders:
            os.rmdir(folder)


def remove_folder(folder: str) -> None:
    """Remove a folder that untrusted code may have written to, if it still exists."""
    with contextlib.suppress(FileNotFoundError):
        empty_folder(folder)
        os.rmdir(folder)


def empty_folder(folder: str) -> None:
    """Remove everything in a folder, however deep, and whatever its permissions."""
    numbers = itertools.count()
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            # Its content moves up, so that no path gets too long.
            os.chmod(entry.path, 0o700)
            for child in list(os.scandir(entry.path)):
                if child.is_dir(follow_symlinks=False):
                    os.chmod(child.path, 0o700)
                os.rename(child.path, os.path.join(folder, f".{next(numbers)}-{os.getpid()}"))
            os.rmdir(entry.path)


def find_processes(rules: Rules) -> list[int]:
    """Return every process of the code."""
    me = os.getpid()
    if rules.has_own_pids:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != me]
    return find_descendants(me)


def _open_folders(rules: Rules) -> None:
    """Give the code's user access to its folders, and nobody else who can see them."""
    for folder in rules.folders:
        if rules.uid is None:
            os.chmod(folder, 0o700)
        elif rules.has_own_pids:
            os.chmod(folder, 0o1777)  # in memory that only this sandbox sees; we have no right to change its owner
        else:
            os.chown(folder, rules.uid, rules.uid)
            os.chmod(folder, 0o700)


def _read_own_limits() -> tuple[object, ...]:
    limits = tuple(resource.getrlimit(kind) for kind in range(_RLIMIT_KINDS))
    io_priority = _libc.syscall(_IOPRIO_GET.get(os.uname().machine, -1), _IOPRIO_WHO_PROCESS, 0)
    priority = os.getpriority(os.PRIO_PROCESS, 0), io_priority
    return (*limits, *priority, os.sched_getscheduler(0), frozenset(os.sched_getaffinity(0)))
