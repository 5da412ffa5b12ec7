# SPDX-License-Identifier: Apache-2.0
"""The run token: who can read the user's own files may see a run's secrets, nobody else.

The head server writes it to a file that only the user can read; clients of the same user find it there.
"""

import contextlib
import os
import secrets
from pathlib import Path

HEADER = "X-NeMo-Gym-Run-Token"


def token_path(folder: Path, host: str, port: int) -> Path:
    """Where the token of the head server at `host:port` is kept."""
    return folder / f"head-{host.replace(':', '_')}-{port}.token"


def create_token(path: Path) -> str:
    """Write a new token to `path`, readable by the user only."""
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token)
    partial.replace(path)
    return token


def read_token(path: Path) -> str | None:
    """The token kept at `path`, if there is one and we may read it."""
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def remove_token(path: Path, token: str) -> None:
    """Remove the token file if it is still ours."""
    if read_token(path) == token:
        with contextlib.suppress(OSError):
            path.unlink()


def same_token(given: str | None, expected: str) -> bool:
    """Compare without giving away how much of it matched."""
    return given is not None and secrets.compare_digest(given.encode(), expected.encode())
