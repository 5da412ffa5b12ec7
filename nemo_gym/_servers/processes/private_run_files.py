# SPDX-License-Identifier: Apache-2.0
"""Files of a run that only its user may read, gone when the run is.

Each says which process it belongs to, so that the next run removes what a killed one left behind. The head server
writes a token to one of them: who can read the user's own files may see a run's secrets, nobody else.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TOKEN_HEADER = "X-NeMo-Gym-Run-Token"
_NAME = re.compile(r"run-(?P<owner>.+-\d+-\d+)-\d+\.yaml")
# Field 22 of /proc/<pid>/stat, counted from the one behind the name of the program.
_START_TIME = 19


@contextmanager
def private_file(folder: Path, text: str) -> Iterator[Path]:
    """Yield a file with `text` while the context lasts. What a killed process left behind is removed on the way."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in folder.iterdir():
        if (match := _NAME.fullmatch(path.name)) and is_abandoned(match["owner"]):
            with suppress(OSError):
                path.unlink()
    path = folder / f"run-{name_owner()}-{int.from_bytes(os.urandom(4))}.yaml"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def name_owner() -> str:
    """Return a name of this process that no other one has: its machine, its id and when it started."""
    return f"{os.uname().nodename}-{os.getpid()}-{_start_time(os.getpid())}"


def is_abandoned(owner: str) -> bool:
    """Tell whether the process of that name, see `name_owner`, has ended; a process of another machine may live."""
    try:
        machine, pid, started = owner.rsplit("-", 2)
        if machine != os.uname().nodename:
            return False
        os.kill(int(pid), 0)
        return _start_time(int(pid)) != int(started)  # its id may belong to another process by now
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError):
        return False


def _start_time(pid: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_TIME])
    except OSError:
        return 0


# --- the run token ----------------------------------------------------------------------------------------------------


def token_path(folder: Path, host: str, port: int) -> Path:
    """Return where the token of the head server at `host:port` is kept."""
    return folder / f"head-{host.replace(':', '_')}-{port}.token"


def create_token(path: Path, given: str | None = None) -> str:
    """Write a new token, or the given one, to `path`, readable by the user only; remove those of killed launchers.

    The second line of the file says which process wrote it.
    """
    token = given or secrets.token_urlsafe(32)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for other in path.parent.glob("head-*.token*"):
        with suppress(OSError, ValueError, IndexError):
            if is_abandoned(other.read_text().splitlines()[-1]):
                other.unlink()
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{token}\n{name_owner()}\n")
    partial.replace(path)
    return token


def read_token(path: Path) -> str | None:
    """Return the token kept at `path`, if there is one and we may read it."""
    try:
        return path.read_text().partition("\n")[0].strip() or None
    except OSError:
        return None


def same_token(given: str | None, expected: str) -> bool:
    """Compare without giving away how much of it matched."""
    return given is not None and secrets.compare_digest(given.encode(), expected.encode())
