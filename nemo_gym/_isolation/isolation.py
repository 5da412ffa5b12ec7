# SPDX-License-Identifier: Apache-2.0
"""How model-written code is isolated on this machine: what it sees of the system, and which isolation works here.

With bubblewrap it sees a read-only system, has its own PIDs and no network. With `rlimits`, kernel rules (Landlock)
show it the same files, and a system call filter denies it sockets. Where it may write, and what else it may see, is up
to the caller: `sandbox_workers` for code, `nemo_gym.sandbox` for commands.
"""

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

Isolation = Literal["bubblewrap", "rlimits"]

SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC_FILES = (
    "alternatives",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "passwd",
)
# Files that describe the machine but not other processes, for use where all of /proc and /sys would be visible.
MACHINE_FILES = tuple(f"/proc/{name}" for name in ("cpuinfo", "loadavg", "meminfo", "stat", "uptime", "version"))
MACHINE_FOLDERS = ("/sys/devices/system/cpu",)


class ChosenIsolation(NamedTuple):
    """The chosen isolation, and why it is not bubblewrap."""

    isolation: Isolation | None
    """None if no allowed isolation works here."""
    without_bubblewrap: str = ""
    without_limits: str = ""


async def choose_isolation(
    wanted: Literal["auto"] | Isolation, bubblewrap: str, find_problem: Callable[[Isolation], Awaitable[str | None]]
) -> ChosenIsolation:
    """Choose bubblewrap if it is allowed and works here, else the kernel's own rules if they work.

    `find_problem` tries an isolation and returns why it failed, or None.
    """
    problem = "the config asks for it"
    if wanted != "rlimits":
        if shutil.which(bubblewrap) is None:
            problem = f"the program {bubblewrap!r} is not installed"
        else:
            failed = await find_problem("bubblewrap")
            if failed is None:
                return ChosenIsolation("bubblewrap")
            problem = f"{bubblewrap!r} does not work here: {failed}"
        if wanted == "bubblewrap":
            return ChosenIsolation(None, problem)
    failed = await find_problem("rlimits")
    if failed is None:
        return ChosenIsolation("rlimits", problem)
    return ChosenIsolation(None, problem, failed)


def build_bubblewrap_prefix(
    executable: str,
    options: Sequence[str],
    *,
    etc_files: Iterable[str] = ETC_FILES,
    read_only_paths: Iterable[str],
    mounts: Sequence[str],
    folder: str,
) -> list[str]:
    """Return the `bwrap` arguments to put before a command that runs in `folder`."""
    prefix = [executable, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    prefix += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL", *options]
    prefix += ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM_LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            prefix += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            prefix += ["--ro-bind", path, path]
    prefix += ["--dir", "/etc"]
    for name in etc_files:
        prefix += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in read_only_paths:
        if not Path(path).is_relative_to("/usr"):
            # The parent folders hold nothing else, and every user can enter them.
            for parent in reversed(Path(path).parents[:-1]):
                prefix += ["--dir", str(parent)]
            prefix += ["--ro-bind", path, path]
    return [*prefix, "--proc", "/proc", "--dev", "/dev", *mounts, "--chdir", folder, "--"]


def list_system_paths(etc_files: Iterable[str] = ETC_FILES) -> tuple[str, ...]:
    """Return the part of the system that `build_bubblewrap_prefix` shows, for use without bubblewrap."""
    links = (f"/{name}" for name in SYSTEM_LINKS)
    return ("/usr", *links, *(f"/etc/{name}" for name in etc_files), *MACHINE_FILES, *MACHINE_FOLDERS)
