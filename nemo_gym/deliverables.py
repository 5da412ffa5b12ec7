# SPDX-License-Identifier: Apache-2.0
"""Tell the files that an agent was asked to deliver from those that its run left beside them."""

from pathlib import Path

IGNORE_FILES = frozenset(
    {
        "finish_params.json",
        "history.json",
        "history.pkl",
        "inprogress_history.json",
        "log.txt",
        "metadata.json",
        "reference_files",
    }
)


def is_deliverable(path: str | Path) -> bool:
    """Return whether `path` is a file that belongs to what was delivered."""
    found = Path(path)
    return found.name not in IGNORE_FILES and found.is_file()
