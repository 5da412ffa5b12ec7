# SPDX-License-Identifier: Apache-2.0
"""Runs one untrusted command under limits and leaves nothing of it behind. A script of its own: see `main`.

It adopts every process that the command leaves behind (a "child subreaper"), whatever sessions they open or
environments they clear, so that it can count them, weigh them and kill them all. It uses the standard library and the
containment of `nemo_gym._execution` only and starts without the site packages, because it is started for every
command. Linux only.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import sys
import time
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # Without what stands on the first pages of these packages, for which a command would have to wait.
    package = os.path.abspath(os.path.join(__file__, os.pardir, os.pardir))
    for name, folder in (("nemo_gym", package), ("nemo_gym._execution", os.path.join(package, "_execution"))):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [folder]

from nemo_gym._execution.inside.file_rules import make_rules
from nemo_gym._execution.inside.kernel_rules import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    become,
    drop_capabilities,
    limit,
    prctl,
    seal,
)
from nemo_gym._execution.inside.process_tree import (
    descendants,
    proportional_bytes,
    resident_bytes,
    send_signal,
    tasks_of,
)

WAKE_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
CHECK_INTERVAL_S = 0.05
KILL_PATIENCE_S = 10.0


def main(settings_fd: int, report_fd: int) -> None:
    """Read settings (JSON) from one file descriptor, run the command, write how it ended (JSON) to the other."""
    os.set_inheritable(report_fd, False)
    with open(settings_fd, encoding="utf-8") as source:
        settings = json.load(source)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKE_SIGNALS)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)  # so that no command with our user's rights looks into our memory
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
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
        uid, contained = settings["uid"], settings["contained"]
        file_rules = make_rules(contained["readable"], contained["writable"]) if contained else None
        if contained and file_rules is None:
            raise OSError(errno.ENOSYS, "this kernel has no Landlock, which alone hides files without bubblewrap")
        limit(resource.RLIMIT_CORE, 0)
        limit(resource.RLIMIT_FSIZE, settings["max_file_bytes"])
        # Not the address space: runtimes reserve far more of that than they ever use. This counts writable memory.
        limit(resource.RLIMIT_DATA, settings["memory_bytes"])
        # The kernel counts all processes of the user, so those that are there already come on top.
        limit(resource.RLIMIT_NPROC, tasks_of(os.getuid() if uid is None else uid) + settings["max_processes"])
        become(uid, settings["gid"])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKE_SIGNALS)
        for restored in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(restored, signal.SIG_DFL)
        os.chdir(settings["cwd"])
        if contained:
            if os.geteuid() == 0:
                drop_capabilities()
            seal(file_rules, has_own_pids=False)
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
    pids = descendants(os.getpid())
    if len(pids) > settings["max_processes"]:
        return "process_limit"
    # Resident pages that processes share are counted once for each; only when that is too much do we look closer.
    allowed = settings["memory_bytes"]
    if sum(map(resident_bytes, pids)) > allowed and sum(map(proportional_bytes, pids)) > allowed:
        return "oom"
    return None


def _kill_descendants() -> int:
    """Kill all that is left, and say how much could not be. Stopped first, so that nothing forks while we look."""
    give_up = time.monotonic() + KILL_PATIENCE_S
    stopped: set[int] = set()
    while time.monotonic() < give_up:
        running = set(descendants(os.getpid())) - stopped
        if not running:
            break
        for pid in running:
            send_signal(pid, signal.SIGSTOP)
        stopped |= running
    while time.monotonic() < give_up:
        _reap(0)
        left = descendants(os.getpid())
        if not left:
            return 0
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)
    return len(descendants(os.getpid()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
