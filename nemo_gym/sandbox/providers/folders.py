# SPDX-License-Identifier: Apache-2.0
"""Folders of this machine that untrusted code wrote to."""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder in which untrusted code may have taken rights away."""
    with suppress(FileNotFoundError):
        try:
            shutil.rmtree(folder)
        except PermissionError:
            for parent, names, _ in os.walk(folder):
                for name in names:
                    path = os.path.join(parent, name)
                    if stat.S_ISDIR(os.lstat(path).st_mode):
                        os.chmod(path, 0o700)
            shutil.rmtree(folder)
