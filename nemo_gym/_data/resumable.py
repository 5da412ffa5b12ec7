# SPDX-License-Identifier: Apache-2.0
"""Download a file of a registry completely or not at all.

What has arrived before a connection broke or the process died is kept beside the target, and the next download of the
same content resumes from there. How a registry is asked for a file is left to it.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import IO, BinaryIO

from nemo_gym.errors import GymError

Progress = Callable[[int, int | None], object]
"""Called with the number of bytes so far, and the total if known."""
OpenAt = Callable[[int], AbstractContextManager[tuple[int, Iterator[bytes]]]]
"""Requests a file from an offset on. Gives the offset of what is sent, which is 0 if ranges are not supported."""

_ATTEMPTS_WITHOUT_PROGRESS = 3


@dataclass(frozen=True)
class RemoteFile:
    """A file in a registry."""

    name: str
    """For messages."""
    open_at: OpenAt
    size_bytes: int | None
    identity: str | None
    """Text by which the content can be recognized later; None means that what has arrived cannot be resumed."""
    checksum: str | None
    """Its SHA-256, or git's id of its content, if known."""
    error: type[GymError]
    """The class of the errors of this registry."""
    is_temporary: Callable[[GymError], bool]
    """Whether a request that failed with this error may be repeated."""


def ignore_progress(_: int, __: int | None) -> None:
    """Show nothing."""


def download(remote: RemoteFile, target: Path, progress: Progress = ignore_progress, pause_s: float = 1.0) -> None:
    """Download a file to `target`, or leave `target` unchanged; raise `remote.error` if the content is damaged."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _open_part(target, remote) as file:
        receive(remote, file, progress, pause_s)
        file.flush()
        try:
            if remote.checksum is not None:
                require_intact(remote.name, compute_checksum(file, remote.checksum), remote.checksum, remote.error)
        except GymError:
            os.unlink(file.name)
            raise
        os.fsync(file.fileno())
        os.replace(file.name, target)


def receive(remote: RemoteFile, file: BinaryIO, progress: Progress = ignore_progress, pause_s: float = 1.0) -> None:
    """Append what `file` lacks of a remote file; resume a broken connection as long as something arrives."""
    failures = 0
    most = file.tell()
    while file.tell() != remote.size_bytes:
        try:
            with remote.open_at(file.tell()) as (start, chunks):
                if start != file.tell():
                    file.seek(start)
                    file.truncate()
                for chunk in chunks:
                    file.write(chunk)
                    progress(file.tell(), remote.size_bytes)
            if remote.size_bytes in (None, file.tell()):
                return
            message = f"could not download {remote.name}: only {file.tell():,} of {remote.size_bytes:,} bytes arrived"
            raise remote.error(message) from EOFError()
        except GymError as error:
            failures = 0 if file.tell() > most else failures + 1
            most = max(most, file.tell())
            if failures >= _ATTEMPTS_WITHOUT_PROGRESS or not remote.is_temporary(error):
                raise
        time.sleep(pause_s)


def require_intact(name: str, actual: str, expected: str, error: type[GymError]) -> None:
    """Raise `error` if a file's checksum is not the expected one."""
    if actual != expected:
        raise error(
            f"{name} arrived damaged: its checksum is {actual}, on upload it was {expected}.\n"
            "hint: download it again; if that does not help, a proxy changes files, or the file was replaced"
        )


def compute_checksum(file: BinaryIO, like: str) -> str:
    """Return a file's checksum of the same type as `like`: SHA-256, or git's id of a blob; else `like` itself."""
    if len(like) == 64:
        digest = hashlib.sha256()
    elif len(like) == 40:
        digest = hashlib.sha1(b"blob %d\0" % file.seek(0, os.SEEK_END), usedforsecurity=False)
    else:
        return like
    file.seek(0)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def lock_download(file: IO[str] | IO[bytes], target: Path, error: type[GymError]) -> None:
    """Lock a file until it is closed; raise `error` if another process downloads to the same target."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as blocked:
        raise error(f"another process is downloading {target} now.\nhint: wait until it is done") from blocked


@contextmanager
def _open_part(target: Path, remote: RemoteFile) -> Iterator[BufferedRandom]:
    """Open what has arrived of a file so far, at its end."""
    identity = f"{remote.identity} {remote.size_bytes}"
    part = target.with_name(f".{target.name[:100]}.{hashlib.sha256(identity.encode()).hexdigest()[:12]}.part")
    with part.open("a+b") as file:
        lock_download(file, target, remote.error)
        if not part.exists() or not os.path.samestat(part.stat(), os.fstat(file.fileno())):
            message = f"another process has just downloaded {target}.\nhint: use it, or run the command again"
            raise remote.error(message)
        size = file.seek(0, os.SEEK_END)
        if remote.identity is None or (remote.size_bytes is not None and size > remote.size_bytes):
            file.truncate(0)
        try:
            yield file
        except BaseException as error:
            if remote.identity is None or file.tell() == 0:
                part.unlink(missing_ok=True)
            elif isinstance(error, GymError) and part.exists():
                kept = f"{file.tell():,} bytes are kept beside the target: the same command resumes from there"
                raise type(error)(f"{error}\n{kept}", *error.args[1:]) from error
            elif isinstance(error, OSError) and error.filename is None:
                error.filename = str(part)  # a write error says only that the disk is full, not which
            raise
