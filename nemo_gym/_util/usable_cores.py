# SPDX-License-Identifier: Apache-2.0
"""Count the processors that this process may use: those it is bound to, or fewer if its cgroup has a smaller share."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def count_usable_cores(cgroup: Path = _CGROUP, own_cgroups: Path = _OWN_CGROUPS) -> int:
    """Return the number of processors that this process can keep busy, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    for folder in _list_cgroups(cgroup, own_cgroups):
        share = _read_share(folder)
        if share is not None:
            cores = min(cores, math.ceil(share))
    return max(1, cores)


def _list_cgroups(cgroup: Path, own_cgroups: Path) -> list[Path]:
    """Return the folders of this process's cgroup and of those above it: each may set a limit."""
    try:
        own = next(line[3:] for line in own_cgroups.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        own = "/"
    below = [part for part in own.split("/") if part and part != ".."]
    return [cgroup.joinpath(*below[:depth]) for depth in range(len(below) + 1)]


def _read_share(folder: Path) -> float | None:
    """Return how many processors a cgroup may use; None if it has no limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        if quota == "max":
            return None
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None
