# SPDX-License-Identifier: Apache-2.0
"""The limits that a piece of untrusted code runs under, and how all of it is found, weighed, stopped and killed."""

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import time
from dataclasses import dataclass

from nemo_gym._execution.inside.file_rules import FileRules, make_rules
from nemo_gym._execution.inside.kernel_rules import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    become,
    limit,
    prctl,
    seal,
)
from nemo_gym._execution.inside.process_tree import (
    descendants,
    proportional_bytes,
    resident_bytes,
    send_signal,
)
from nemo_gym._execution.inside.syscall_filter import prepare_filter

KILL_PATIENCE_S = 5.0
WIPE_PATIENCE_S = 5.0
_RLIMIT_KINDS = 16
_IOPRIO_GET, _IOPRIO_WHO_PROCESS = {"x86_64": 252, "aarch64": 31}, 1
RESTORED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Rules:
    """How a sandbox is set up, and what code in it may use."""

    has_own_pids: bool
    """Whether this is the first process of a PID namespace, so that all others in it are the code's."""
    uid: int | None
    """The user to become, if we may; nobody else has this number, so limits on it are exact."""
    other_tasks: int
    """How many processes and threads the user has already, where the kernel counts them all."""
    folders: tuple[str, ...]
    """Where code may write; the first is its working folder."""
    readable: tuple[str, ...]
    """What else code may see, where the whole machine would be in sight."""
    memory_bytes: int
    max_processes: int
    max_file_bytes: int
    max_open_files: int
    max_output_bytes: int


@dataclass(frozen=True)
class Prepared:
    """What the trusted process has ready for its children."""

    file_rules: FileRules | None
    """Where bubblewrap does not hide files: the kernel's rules for them, if it knows any."""
    resident_bytes: int
    """Its own memory, of which every child begins with a copy that costs nothing."""
    own_limits: tuple[object, ...]
    """Its own limits and priority, with which every child begins."""


def prepare(rules: Rules) -> Prepared:
    """In the trusted process: be out of reach of its children, and adopt what they leave behind."""
    if rules.has_own_pids and os.getpid() != 1:
        raise SystemExit("not the first process of a PID namespace: killing all processes would go too far")
    adopt_orphans()
    prctl(PR_SET_DUMPABLE, 0)  # so that nobody with our user's rights looks into our memory
    _open_folders(rules)
    prepare_filter()
    file_rules = None if rules.has_own_pids else make_rules(rules.readable, rules.folders)
    return Prepared(file_rules, resident_bytes(os.getpid()), _own_limits())


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own, so that none is lost sight of."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def is_unchanged(prepared: Prepared) -> bool:
    """Whether the trusted process still has its own limits and priority; the kernel lets its user take them away."""
    return _own_limits() == prepared.own_limits


def confine(rules: Rules, prepared: Prepared) -> None:
    """In a new child: take the limits on and give rights up, for good."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_MSGQUEUE, 0)
    limit(resource.RLIMIT_FSIZE, rules.max_file_bytes)
    limit(resource.RLIMIT_NOFILE, rules.max_open_files)
    # Not the address space: runtimes reserve far more of that than they ever use. This counts writable memory.
    limit(resource.RLIMIT_DATA, rules.memory_bytes)
    limit(resource.RLIMIT_NPROC, rules.other_tasks + rules.max_processes)
    become(rules.uid, rules.uid)
    # After the change of user, which undoes both.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
        score.write(b"1000")  # should the machine run out of memory, this is what may go
    for number in RESTORED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seal(prepared.file_rules, has_own_pids=rules.has_own_pids)


def hide_from_others() -> None:
    """In a child that is confined: keep other processes of the same user out of our memory and file descriptors."""
    prctl(PR_SET_DUMPABLE, 0)


def kill_all(rules: Rules) -> bool:
    """Kill and collect every process of the code; False if some are left."""
    give_up = time.monotonic() + KILL_PATIENCE_S
    while time.monotonic() < give_up:
        signal_all(rules, signal.SIGKILL)
        if _reap_all():
            return True
        time.sleep(0.001)
    return False


def signal_all(rules: Rules, number: signal.Signals) -> None:
    """Send a signal to every process of the code."""
    if rules.has_own_pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)
        return
    if number == signal.SIGKILL:
        _stop_all(rules)  # so that nothing forks while we look
    for pid in processes(rules):
        send_signal(pid, number)


def exceeded(rules: Rules, prepared: Prepared) -> str | None:
    """Which limit all processes of the code together have passed, if any."""
    pids = processes(rules)
    if len(pids) > rules.max_processes:
        return "killed"
    # Resident pages that processes share are counted once for each; only when that is too much do we look closer.
    allowed = rules.memory_bytes
    own = sum(max(resident_bytes(pid) - prepared.resident_bytes, 0) for pid in pids)
    if own > allowed and sum(map(proportional_bytes, pids)) > allowed:
        return "memory"
    return None


def waited_s(pid: int) -> float:
    """How long a process was ready to run while others had the processors."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as schedstat:
            return int(schedstat.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def wipe(rules: Rules) -> bool:
    """Empty the folders that code may write to; False if something is left in them."""
    _open_folders(rules)  # where code runs as our user, it may have closed them
    if not any(map(os.listdir, rules.folders)):
        return True
    wiper = os.fork()
    if wiper == 0:
        # As the user who owns the files: without rights over others', we could not remove them ourselves.
        try:
            become(rules.uid, rules.uid)
            signal.alarm(int(WIPE_PATIENCE_S))
            for folder in rules.folders:
                empty(folder)
        finally:
            os._exit(0)
    os.waitpid(wiper, 0)
    return not any(map(os.listdir, rules.folders))


def remove_folders(rules: Rules) -> None:
    """At the end: leave nothing of the folders, unless they are in memory and go by themselves."""
    if not rules.has_own_pids and wipe(rules):
        for folder in rules.folders:
            os.rmdir(folder)


def empty(folder: str) -> None:
    """Remove all that is in a folder, however deep, and whatever rights were taken away."""
    numbers = itertools.count()
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            # What is in it moves up, so that no path grows long.
            os.chmod(entry.path, 0o700)
            for child in list(os.scandir(entry.path)):
                if child.is_dir(follow_symlinks=False):
                    os.chmod(child.path, 0o700)
                os.rename(child.path, os.path.join(folder, f".{next(numbers)}-{os.getpid()}"))
            os.rmdir(entry.path)


def processes(rules: Rules) -> list[int]:
    """Every process of the code."""
    me = os.getpid()
    if rules.has_own_pids:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != me]
    return descendants(me)


def _open_folders(rules: Rules) -> None:
    """Let the code's user into its folders, and nobody else who could see them."""
    for folder in rules.folders:
        if rules.uid is None:
            os.chmod(folder, 0o700)
        elif rules.has_own_pids:
            os.chmod(folder, 0o1777)  # in memory that only this sandbox sees, and without the right to give it away
        else:
            os.chown(folder, rules.uid, rules.uid)
            os.chmod(folder, 0o700)


def _own_limits() -> tuple[object, ...]:
    limits = tuple(resource.getrlimit(kind) for kind in range(_RLIMIT_KINDS))
    io_priority = _libc.syscall(_IOPRIO_GET.get(os.uname().machine, -1), _IOPRIO_WHO_PROCESS, 0)
    priority = os.getpriority(os.PRIO_PROCESS, 0), io_priority
    return (*limits, *priority, os.sched_getscheduler(0), frozenset(os.sched_getaffinity(0)))


def _reap_all() -> bool:
    """Collect all that has ended; True if there is nothing left that could end."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return True
    return False


def _stop_all(rules: Rules) -> None:
    stopped: set[int] = set()
    give_up = time.monotonic() + KILL_PATIENCE_S
    while (running := set(processes(rules)) - stopped) and time.monotonic() < give_up:
        for pid in running:
            send_signal(pid, signal.SIGSTOP)
        stopped |= running
