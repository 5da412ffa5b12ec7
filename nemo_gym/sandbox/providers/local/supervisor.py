# SPDX-License-Identifier: Apache-2.0
"""Runs one untrusted command under limits and leaves nothing of it behind. A script of its own: see `main`.

It adopts every process that the command leaves behind (a "child subreaper"), whatever sessions they open or
environments they clear, so that it can count them, weigh them and kill them all. It uses the standard library only and
starts without the site packages, because it is started for every command. Linux only.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
WAKE_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
CHECK_INTERVAL_S = 0.05
KILL_PATIENCE_S = 10.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main(settings_fd: int, report_fd: int) -> None:
    """Read settings (JSON) from one file descriptor, run the command, write how it ended (JSON) to the other."""
    os.set_inheritable(report_fd, False)
    with open(settings_fd, encoding="utf-8") as source:
        settings = json.load(source)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKE_SIGNALS)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        return
    child = os.fork()
    if child == 0:
        _become_command(settings)
    return_code, cause = _watch(child, settings)
    survivors = _kill_descendants()
    report = {"return_code": return_code, "error_type": cause, "survivors": survivors}
    os.write(report_fd, json.dumps(report).encode())


def _become_command(settings: dict[str, Any]) -> None:
    """In the child: take the limits on, give rights up, and turn into the command."""
    try:
        os.setsid()
        uid, gid = settings["uid"], settings["gid"]
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_FSIZE, settings["max_file_bytes"])
        # Not the address space: runtimes reserve far more of that than they ever use. This counts writable memory.
        _limit(resource.RLIMIT_DATA, settings["memory_bytes"])
        # The kernel counts all processes of the user, so those that are there already come on top.
        _limit(resource.RLIMIT_NPROC, _tasks_of(os.getuid() if uid is None else uid) + settings["max_processes"])
        if uid is not None:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKE_SIGNALS)
        for restored in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(restored, signal.SIG_DFL)
        os.chdir(settings["cwd"])
        os.execvpe(settings["argv"][0], settings["argv"], settings["env"])
    except OSError as error:
        os.write(2, f"cannot run the command: {error}\n".encode())
    finally:
        os._exit(126)


def _watch(child: int, settings: dict[str, Any]) -> tuple[int, str | None]:
    """Wait until the command ends or must be ended: its return code, and what cut it short."""
    deadline = time.monotonic() + settings["timeout_s"] if settings["timeout_s"] is not None else float("inf")
    next_check = 0.0
    while True:
        now = time.monotonic()
        status = _reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return (128 - code if code < 0 else code), None
        if now >= deadline:
            return 125, "timeout"
        if now >= next_check:
            cause = _exceeded(settings)
            if cause is not None:
                return 137, cause
            next_check = time.monotonic() + CHECK_INTERVAL_S
        woken = signal.sigtimedwait(WAKE_SIGNALS, max(min(next_check, deadline) - time.monotonic(), 0.001))
        if woken is not None and woken.si_signo != signal.SIGCHLD:
            return 143, "cancelled"


def _reap(child: int) -> int | None:
    """Collect all that has ended; the wait status of `child` if it was among them."""
    status_of_child = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                status_of_child = status
    return status_of_child


def _exceeded(settings: dict[str, Any]) -> str | None:
    pids = _descendants()
    if len(pids) > settings["max_processes"]:
        return "process_limit"
    # Resident pages that processes share are counted once for each; only when that is too much do we look closer.
    limit = settings["memory_bytes"]
    if sum(map(_resident_bytes, pids)) > limit and sum(map(_proportional_bytes, pids)) > limit:
        return "oom"
    return None


def _kill_descendants() -> int:
    """Kill all that is left, and say how much could not be. Stopped first, so that nothing forks while we look."""
    give_up = time.monotonic() + KILL_PATIENCE_S
    stopped: set[int] = set()
    while time.monotonic() < give_up:
        running = set(_descendants()) - stopped
        if not running:
            break
        for pid in running:
            _signal(pid, signal.SIGSTOP)
        stopped |= running
    while time.monotonic() < give_up:
        _reap(0)
        left = _descendants()
        if not left:
            return 0
        for pid in left:
            _signal(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)
    return len(_descendants())


def _descendants() -> list[int]:
    """Every process below this one."""
    found: list[int] = []
    parents = [os.getpid()]
    children_of = _children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _scan()
    while parents:
        children = children_of(parents.pop())
        found += children
        parents += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as listing:
                children += map(int, listing.read().split())
    return children


def _scan() -> Any:
    """The same from a table of all processes, for kernels that do not list the children of one."""
    by_parent: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                by_parent.setdefault(parent, []).append(int(entry))
    return lambda pid: by_parent.get(pid, [])


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    """Memory of a process with shared pages divided among those that share them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident_bytes(pid)


def _tasks_of(uid: int) -> int:
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{entry}/task"))
    return count


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _signal(pid: int, signal_number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
