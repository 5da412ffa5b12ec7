# SPDX-License-Identifier: Apache-2.0
"""The run token: who can read the user's own files may see a run's secrets, nobody else.

The head server writes it to a file that only the user can read; clients of the same user find it there. The file's
second line says which process wrote it.
"""

import contextlib
import os
import secrets
from pathlib import Path

from nemo_gym._serving import run_files

HEADER = "X-NeMo-Gym-Run-Token"


def token_path(folder: Path, host: str, port: int) -> Path:
    """Where the token of the head server at `host:port` is kept."""
    return folder / f"head-{host.replace(':', '_')}-{port}.token"


def create_token(path: Path, given: str | None = None) -> str:
    """Write a new token, or the given one, to `path`, readable by the user only; remove those of killed launchers."""
    token = given or secrets.token_urlsafe(32)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for other in path.parent.glob("head-*.token*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if run_files.is_left_behind(other.read_text().splitlines()[-1]):
                other.unlink()
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{token}\n{run_files.name_owner()}\n")
    partial.replace(path)
    return token


def read_token(path: Path) -> str | None:
    """The token kept at `path`, if there is one and we may read it."""
    try:
        return path.read_text().partition("\n")[0].strip() or None
    except OSError:
        return None


def same_token(given: str | None, expected: str) -> bool:
    """Compare without giving away how much of it matched."""
    return given is not None and secrets.compare_digest(given.encode(), expected.encode())
