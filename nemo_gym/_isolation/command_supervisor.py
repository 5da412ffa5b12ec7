# SPDX-License-Identifier: Apache-2.0
"""Run one untrusted command under limits and leave none of its processes behind. This is a script: see `main`.

It adopts every process that loses its parent (a "child subreaper"), whatever sessions they open or environments they
clear, so that it can count, measure and kill them all. It starts for every command, so it imports the standard library
and `inside` only, without site packages. Linux only.
"""

import contextlib
import errno
import json
import os
import signal
import sys
import time
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # Empty packages instead of the real ones, whose imports would delay every command.
    package = os.path.abspath(os.path.join(__file__, os.pardir, os.pardir))
    for name, folder in (("nemo_gym", package), ("nemo_gym._isolation", os.path.join(package, "_isolation"))):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [folder]

from nemo_gym._isolation.inside.kernel_rules import (
    PR_SET_PDEATHSIG,
    build_namespace_filter,
    confine,
    drop_capabilities,
    guard_against_children,
    make_file_rules,
    prctl,
    seal,
)
from nemo_gym._isolation.inside.process_tree import count_tasks, find_descendants, find_excess, kill_descendants

WAKE_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
CHECK_INTERVAL_S = 0.05
DISK_CHECK_INTERVAL_S = 0.5
KILL_PATIENCE_S = 10.0
ROOM_FOR_OTHERS = 2000


def main(settings_fd: int, report_fd: int) -> None:
    """Read settings (JSON) from one file descriptor, run the command, and write how it ended (JSON) to the other."""
    os.set_inheritable(report_fd, False)
    with open(settings_fd, encoding="utf-8") as source:
        settings = json.load(source)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKE_SIGNALS)
    guard_against_children()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        return
    child = os.fork()
    if child == 0:
        _become_command(settings)
    return_code, cause = _watch(child, settings)
    survivors = kill_descendants(KILL_PATIENCE_S)
    report = {"return_code": return_code, "error_type": cause, "survivors": survivors}
    os.write(report_fd, json.dumps(report).encode())


def _become_command(settings: dict[str, Any]) -> None:
    """In the child: apply limits, give up rights, and execute the command."""
    try:
        os.setsid()
        uid = settings["uid"]
        counted = settings["counted_uid"]
        if counted is None:
            counted = os.getuid()
        contained = settings["contained"]
        file_rules = None
        if contained:
            file_rules = make_file_rules(contained["readable"], contained["writable"])
            if file_rules is None:
                message = "this kernel has no Landlock, and without bubblewrap nothing else hides files"
                raise OSError(errno.ENOSYS, message)
        confine(
            uid,
            settings["gid"],
            memory_bytes=settings["memory_bytes"],
            # The kernel counts all processes of the user, so add those that exist already, and room for those that
            # other sandboxes start meanwhile. `_watch` enforces the exact limit: it counts only ours.
            max_tasks=count_tasks(counted) + settings["max_processes"] + ROOM_FOR_OTHERS,
            max_file_bytes=settings["max_file_bytes"],
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKE_SIGNALS)
        # Under `nohup`, or in the background of a shell, we are started with some of these ignored.
        for restored in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(restored, signal.SIG_DFL)
        os.chdir(settings["cwd"])
        if contained:
            if os.geteuid() == 0:
                drop_capabilities()
            seal(file_rules, has_own_pids=False)
        if settings["filter_fd"] is not None:
            _open_filter(settings["filter_fd"])
        os.execvpe(settings["argv"][0], settings["argv"], settings["env"])
    except OSError as error:
        os.write(2, f"cannot run the command: {error}\n".encode())
    finally:
        os._exit(126)


def _open_filter(fd: int) -> None:
    """Have bubblewrap, which runs next, find its filter on system calls at `fd`."""
    file = os.memfd_create("filter")
    os.write(file, build_namespace_filter() or b"")
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, fd)


def _watch(child: int, settings: dict[str, Any]) -> tuple[int, str | None]:
    """Wait until the command ends or must be ended; return its return code and what cut it short."""
    deadline = float("inf")
    if settings["timeout_s"] is not None:
        deadline = time.monotonic() + settings["timeout_s"]
    next_check = next_disk_check = 0.0
    while True:
        now = time.monotonic()
        status = _reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return (128 - code if code < 0 else code), None
        if now >= deadline:
            return 125, "timeout"
        if now >= next_check:
            excess = find_excess(
                find_descendants(os.getpid()),
                max_processes=settings["max_processes"],
                memory_bytes=settings["memory_bytes"],
            )
            if excess is not None:
                return 137, {"processes": "process_limit", "memory": "oom"}[excess]
            if now >= next_disk_check:
                took_s = -time.monotonic()
                if _measure_disk(settings["folders"], settings["max_disk_bytes"]) > settings["max_disk_bytes"]:
                    return 137, "disk_limit"
                took_s += time.monotonic()
                # Measuring a folder with very many files takes a while, so it is measured less often.
                next_disk_check = time.monotonic() + max(DISK_CHECK_INTERVAL_S, 20 * took_s)
            next_check = time.monotonic() + CHECK_INTERVAL_S
        woken = signal.sigtimedwait(WAKE_SIGNALS, max(min(next_check, deadline) - time.monotonic(), 0.001))
        if woken is not None and woken.si_signo != signal.SIGCHLD:
            return 143, "cancelled"


def _measure_disk(folders: list[str], enough: int) -> int:
    """Return how many bytes the files below `folders` take; stop counting above `enough`."""
    total = 0
    todo = list(folders)
    while todo and total <= enough:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _reap(child: int) -> int | None:
    """Reap every process that has ended; return the wait status of `child` if it was among them."""
    status_of_child = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                status_of_child = status
    return status_of_child


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
