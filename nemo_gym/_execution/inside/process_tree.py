# SPDX-License-Identifier: Apache-2.0
"""The processes below one, what they weigh, and signals to them."""

import contextlib
import os
import signal
from collections.abc import Callable

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`."""
    found: list[int] = []
    parents = [pid]
    children_of = _children if os.path.exists("/proc/thread-self/children") else _scan()
    while parents:
        children = children_of(parents.pop())
        found += children
        parents += children
    return found


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, with all that it shares."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process with shared pages divided among those that share them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        return resident_bytes(pid)


def tasks_of(uid: int) -> int:
    """Count the processes and threads of a user."""
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{entry}/task"))
    return count


def send_signal(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                children += map(int, listing.read().split())
    return children


def _scan() -> Callable[[int], list[int]]:
    """The same from a table of all processes, for kernels that do not list the children of one."""
    by_parent: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as status:
                parent = int(status.read().rpartition(b")")[2].split()[1])
                by_parent.setdefault(parent, []).append(int(entry))
    return lambda pid: by_parent.get(pid, [])
