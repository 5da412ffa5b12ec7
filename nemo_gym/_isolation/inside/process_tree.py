# SPDX-License-Identifier: Apache-2.0
"""The descendants of a process: find them, measure them, and kill them all."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from typing import Literal

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def find_descendants(pid: int) -> list[int]:
    """Return all descendants of `pid`."""
    found: list[int] = []
    parents = [pid]
    children_of = _read_children if os.path.exists("/proc/thread-self/children") else _scan_parents()
    while parents:
        children = children_of(parents.pop())
        found += children
        parents += children
    return found


def find_excess(
    pids: Collection[int], *, max_processes: int, memory_bytes: int, shared_bytes: int = 0
) -> Literal["processes", "memory"] | None:
    """Return which limit all `pids` together exceed, if any.

    `shared_bytes` is the memory that each of them began with as a copy, which costs nothing.
    """
    if len(pids) > max_processes:
        return "processes"
    # This counts shared pages once per process, so a closer and slower look follows only if it is too much.
    own = sum(max(measure_resident_bytes(pid) - shared_bytes, 0) for pid in pids)
    if own > memory_bytes and sum(map(_measure_proportional_bytes, pids)) > memory_bytes:
        return "memory"
    return None


def kill_descendants(patience_s: float) -> int:
    """Kill and reap all descendants of this process, which must be a subreaper; return how many are left."""
    give_up = time.monotonic() + patience_s
    while True:
        _stop_descendants(give_up)  # so that nothing forks meanwhile
        for pid in find_descendants(os.getpid()):
            send_signal(pid, signal.SIGKILL)
        if reap_all():
            return 0
        if time.monotonic() >= give_up:
            return len(find_descendants(os.getpid()))
        time.sleep(0.001)


def reap_all() -> bool:
    """Reap every child that has ended; return whether no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return True
    return False


def _stop_descendants(give_up: float) -> None:
    stopped: set[int] = set()
    while (running := set(find_descendants(os.getpid())) - stopped) and time.monotonic() < give_up:
        for pid in running:
            send_signal(pid, signal.SIGSTOP)
        stopped |= running


def measure_resident_bytes(pid: int) -> int:
    """Return the memory of a process, including what it shares."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _measure_proportional_bytes(pid: int) -> int:
    """Return the memory of a process, with shared pages divided among those that share them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        return measure_resident_bytes(pid)


def count_tasks(uid: int) -> int:
    """Count the processes and threads of a user."""
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{entry}/task"))
    return count


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _read_children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                children += map(int, listing.read().split())
    return children


def _scan_parents() -> Callable[[int], list[int]]:
    """Return a replacement of `_read_children` for kernels that do not list children: a table of all processes."""
    by_parent: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as status:
                parent = int(status.read().rpartition(b")")[2].split()[1])
                by_parent.setdefault(parent, []).append(int(entry))
    return lambda pid: by_parent.get(pid, [])
