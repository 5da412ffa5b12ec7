# SPDX-License-Identifier: Apache-2.0
"""The words of a `bwrap` call: what every sandbox sees of the machine, and the whole call around a sandbox for code.

That one has a read-only system, private folders in memory, no network and its own PIDs. Where a command of
`nemo_gym.sandbox` may write is said there.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

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
# What tells programs about the machine and nobody about others, where all of /proc and /sys would be in sight.
MACHINE_FILES = tuple(f"/proc/{name}" for name in ("cpuinfo", "loadavg", "meminfo", "stat", "uptime", "version"))
MACHINE_FOLDERS = ("/sys/devices/system/cpu",)


def system_paths(etc_files: Iterable[str]) -> tuple[str, ...]:
    """Return the same part of the system as `system_view`, for rules that are kept without bubblewrap."""
    links = (f"/{name}" for name in SYSTEM_LINKS)
    return ("/usr", *links, *(f"/etc/{name}" for name in etc_files), *MACHINE_FILES, *MACHINE_FOLDERS)


def writable_folders(read_only_paths: Iterable[str]) -> tuple[str, str]:
    """Where a command may write, beginning with its working folder: not /tmp if something to be shown lies there."""
    in_tmp = any(Path(path).is_relative_to("/tmp") for path in read_only_paths)
    return ("/workspace" if in_tmp else "/tmp"), "/dev/shm"


def bubblewrap_prefix(
    executable: str, read_only_paths: Sequence[str], max_folder_bytes: int, *, is_root: bool
) -> list[str]:
    """What goes before the command. As root there is no need for a user namespace; the command then keeps the right to
    become another user, and to kill what that user runs."""
    prefix = [executable, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    prefix += ["--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if is_root:
        prefix += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    else:
        prefix += ["--unshare-user"]
    prefix += system_view(ETC_FILES, read_only_paths)
    folders = writable_folders(read_only_paths)
    for folder in folders:
        prefix += ["--size", str(max_folder_bytes), "--tmpfs", folder]
    return [*prefix, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", folders[0], "--"]


def system_view(etc_files: Iterable[str], read_only_paths: Iterable[str]) -> list[str]:
    """Options for a read-only view of the system's programs, some of its settings, and `read_only_paths`."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM_LINKS:
        folder = f"/{name}"
        if os.path.islink(folder):
            options += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            options += ["--ro-bind", folder, folder]
    options += ["--dir", "/etc"]
    for name in etc_files:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return [*options, *_bound(read_only_paths), "--proc", "/proc", "--dev", "/dev"]


def _bound(paths: Iterable[str]) -> Sequence[str]:
    """Show `paths` read-only; the folders above them are empty but for them, and can be passed by every user."""
    arguments: list[str] = []
    for path in paths:
        if not Path(path).is_relative_to("/usr"):
            for parent in reversed(Path(path).parents[:-1]):
                arguments += ["--dir", str(parent)]
            arguments += ["--ro-bind", path, path]
    return arguments
