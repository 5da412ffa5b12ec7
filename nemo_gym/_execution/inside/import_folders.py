# SPDX-License-Identifier: Apache-2.0
"""Let code import from folders that its user cannot get to, such as those of an interpreter in the home of root.

The trusted process opens the folders; its children keep the file descriptors, which can be read and searched but not
written to, and the import system goes by them. The rules for files (`file_rules`) hold for them as for any path.
"""

import fcntl
import os
import stat
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

FIRST_FD = 100


def open_import_folders() -> int:
    """Open every folder of `sys.path` that other users cannot get to, and import from it that way; say how many."""
    opened: dict[str, str] = {}
    for folder in dict.fromkeys(filter(os.path.isdir, sys.path)):
        if not _is_open_to_others(folder):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened[folder] = f"/proc/self/fd/{fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)}"
            os.close(fd)
    if opened:
        find = next(hook for hook in sys.path_hooks if "FileFinder" in getattr(hook, "__qualname__", ""))

        def find_by_descriptor(path: str) -> Any:
            for folder, link in opened.items():
                if path == folder or path.startswith(f"{folder}/"):
                    return find(link + path[len(folder) :])
            raise ImportError(path)

        sys.path_hooks.insert(0, find_by_descriptor)
        sys.path_importer_cache.clear()
        PathFinder.invalidate_caches()
    return len(opened)


def _is_open_to_others(folder: str) -> bool:
    ways = {Path(folder), Path(os.path.realpath(folder))}
    return all(os.stat(part).st_mode & stat.S_IXOTH for way in ways for part in way.parents)
