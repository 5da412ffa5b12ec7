# SPDX-License-Identifier: Apache-2.0
"""How many processors this process may use: those it is bound to, or fewer where its cgroup has a smaller share."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def count_usable_cores(cgroup: Path = _CGROUP, own_cgroups: Path = _OWN_CGROUPS) -> int:
    """Return the number of processors that this process can keep busy, at least 1."""
    bound_to = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [share for folder in _list_cgroups(cgroup, own_cgroups) if (share := _read_share(folder)) is not None]
    return max(1, min(bound_to, *(math.ceil(share) for share in shares)) if shares else bound_to)


def _list_cgroups(cgroup: Path, own_cgroups: Path) -> list[Path]:
    """Return the folder of this process's cgroup and those above it: each of them may set a limit."""
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
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None
