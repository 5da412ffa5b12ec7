# SPDX-License-Identifier: Apache-2.0
"""The folder that a program works in: what a task puts there, and what the program changes.

A workspace is given as files in the row or in the reply of `/seed_session`, as a folder of this machine, or as a git
bundle. What the verifier gets is bounded, and has only regular files.
"""

import base64
import binascii
import difflib
import fnmatch
import itertools
import math
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.errors import GymError

_MAX_DIFFED_BYTES = 256 * 1024
_GIT_TIMEOUT_S = 120
_MAX_PATH_BYTES = 1024  # below the kernel's 4096 with the path of the copy
_MAX_HOPS = 40  # as the kernel follows
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkspaceError(GymError):
    """A task's workspace cannot be created."""


class Workspace(BaseModel):
    """What a task puts into the workspace."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    """Content by relative path: text, or `{"base64": ...}`."""
    folder: str | None = None
    """A folder of this machine to copy."""
    git_bundle: str | None = None
    """A file made by `git bundle create`, to clone."""


class WorkspaceChange(BaseModel):
    """What a program changed in its workspace."""

    diff: str = ""
    """The changes to text files, as `diff -u` shows them."""
    files: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    """New and changed files, in full."""
    deleted: list[str] = Field(default_factory=list)
    left_out: list[str] = Field(default_factory=list)
    """Files that were too large for `files`, or could not be copied."""
    path: str | None = None
    """A copy of the whole workspace on this machine, which lasts until the verifier returns."""


def read_workspace(given: Any) -> Workspace:
    """Return the workspace that a row or a resources server describes."""
    try:
        return Workspace.model_validate(given)
    except ValidationError as error:
        raise WorkspaceError(
            f"the task's workspace cannot be read: {error}\n"
            'hint: {"files": {"PATH": "text"}}, {"folder": "PATH"} or {"git_bundle": "PATH"}'
        ) from error


def write_workspace(workspace: Workspace, target: Path) -> None:
    """Write the task's workspace to the folder `target`."""
    target.mkdir(parents=True, exist_ok=True)
    if workspace.folder is not None:
        if not Path(workspace.folder).is_dir():
            raise WorkspaceError(f"the task's workspace folder {workspace.folder!r} does not exist")
        shutil.copytree(workspace.folder, target, symlinks=True, dirs_exist_ok=True)
    if workspace.git_bundle is not None:
        clone = ["git", "clone", "--quiet", str(Path(workspace.git_bundle).absolute()), str(target)]
        done = subprocess.run(clone, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise WorkspaceError(
                f"the task's git bundle {workspace.git_bundle!r} cannot be cloned: {done.stderr.strip()}\n"
                "hint: `git bundle create FILE HEAD` makes one"
            )
    for name, content in workspace.files.items():
        path = target / _check_relative(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_decode(name, content))


@dataclass(frozen=True)
class CopyLimits:
    """How much of the workspace that a program left is copied."""

    files: int = 20_000
    """Files, folders and links together."""
    depth: int = 64
    """Folders in one another."""
    bytes: int = 2 * 2**30
    give_up_at_s: float = math.inf
    """When to stop, on the clock of `time.monotonic`."""


def copy_workspace(source: Path, target: Path, limits: CopyLimits) -> list[str]:
    """Copy the workspace that a program left; return the names of what was not copied.

    That is what no verifier should open: links that lead out of the workspace, files with another name outside of it,
    special files such as devices, names that are not text, and all that exceeds `limits`.
    """
    copy = _WorkspaceCopy(target, limits)
    target.mkdir()
    folder = os.open(source, _OPEN_FOLDER)
    try:
        copy.add_folder(folder, PurePosixPath(), 0)
    except _EnoughCopied as reason:
        copy.left_out.append(f"[... the rest: {reason} ...]")
    finally:
        os.close(folder)
    copy.remove_what_leads_out()
    return sorted(copy.left_out)


class _EnoughCopied(Exception):
    """A limit is reached."""


class _WorkspaceCopy:
    """A copy of a workspace that is being made.

    Folders are opened one below the other, never by a path with links in it.
    """

    def __init__(self, target: Path, limits: CopyLimits) -> None:
        self._target = target
        self._limits = limits
        self._entries = 0
        self._room = limits.bytes
        self._links: list[PurePosixPath] = []
        self._names_of_file: dict[tuple[int, int], list[PurePosixPath]] = {}
        """The copies of each file that has several names."""
        self._count_of_names: dict[tuple[int, int], int] = {}
        self.left_out: list[str] = []

    def add_folder(self, folder: int, label: PurePosixPath, depth: int) -> None:
        """Copy what is in an open folder; its copy exists."""
        for name in self._list_names(folder):
            if time.monotonic() >= self._limits.give_up_at_s:
                raise _EnoughCopied("it took too long")
            path = label / name
            try:
                self._add(folder, name, path, depth)
            except OSError:
                self.left_out.append(show_name(path))

    def _list_names(self, folder: int) -> list[str]:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, self._limits.files - self._entries + 1)]
        self._entries += len(names)
        if self._entries > self._limits.files:
            raise _EnoughCopied(f"more than {self._limits.files} files")
        return sorted(names)

    def _add(self, folder: int, name: str, path: PurePosixPath, depth: int) -> None:
        status = os.lstat(name, dir_fd=folder)
        is_folder = stat.S_ISDIR(status.st_mode)
        is_short = len(os.fsencode(path)) <= _MAX_PATH_BYTES
        if not is_text(name) or not is_short or (is_folder and depth >= self._limits.depth):
            self.left_out.append(show_name(path) + "/" * is_folder)
        elif is_folder:
            below = os.open(name, _OPEN_FOLDER, dir_fd=folder)
            try:
                (self._target / path).mkdir()
                self.add_folder(below, path, depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISLNK(status.st_mode) and is_text(where := os.readlink(name, dir_fd=folder)):
            (self._target / path).symlink_to(where)
            self._links.append(path)
        elif stat.S_ISREG(status.st_mode) and status.st_size <= self._room:
            self._add_file(folder, name, path)
        else:
            self.left_out.append(show_name(path))

    def _add_file(self, folder: int, name: str, path: PurePosixPath) -> None:
        with (
            open(os.open(name, _OPEN_FILE, dir_fd=folder), "rb") as file,
            (self._target / path).open("xb") as copy,
        ):
            status = os.fstat(file.fileno())
            shutil.copyfileobj(file, copy)
            # Without set-user-id and the like: the copy belongs to us.
            os.fchmod(copy.fileno(), status.st_mode & 0o777)
        self._room -= status.st_size
        if status.st_nlink > 1:
            inode = (status.st_dev, status.st_ino)
            self._names_of_file.setdefault(inode, []).append(path)
            self._count_of_names[inode] = status.st_nlink

    def remove_what_leads_out(self) -> None:
        """Remove links that lead out, and files that also have a name outside: they may be files of the host."""
        unsafe = [path for path in self._links if not self._stays_within(path)]
        for inode, paths in self._names_of_file.items():
            unsafe += paths if len(paths) < self._count_of_names[inode] else []
        for path in unsafe:
            (self._target / path).unlink()
            self.left_out.append(show_name(path))

    def _stays_within(self, link: PurePosixPath) -> bool:
        """Follow a link in the copy as the kernel does; return whether it stays below the top on all its way."""
        here = list(link.parent.parts)
        ahead = [link.name]
        hops = 0
        while ahead:
            part = ahead.pop()
            path = self._target.joinpath(*here, part)
            if part == "..":
                if not here:
                    return False
                here.pop()
            elif os.path.islink(path):
                where = os.readlink(path)
                hops += 1
                if os.path.isabs(where) or hops > _MAX_HOPS:
                    return False
                ahead += reversed(where.split("/"))
            elif part not in ("", "."):
                here.append(part)
        return True


def is_text(name: str) -> bool:
    """Return whether a name is valid UTF-8; others cannot be part of a row."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def show_name(path: PurePosixPath) -> str:
    """Return a path as text, with bytes that are no UTF-8 as escapes."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def collect_change(
    before: Path,
    after: Path,
    *,
    leave_out: Sequence[str],
    patterns: Sequence[str],
    max_bytes: int,
    give_up_at_s: float = math.inf,
) -> WorkspaceChange:
    """Compare two states of a workspace.

    `leave_out` are patterns of files to ignore, `patterns` of those to return in full, up to `max_bytes`.
    At `give_up_at_s`, on the clock of `time.monotonic`, the rest is left out.
    """
    old = dict(_walk(before, leave_out))
    new = dict(_walk(after, leave_out))
    change = WorkspaceChange(deleted=sorted(old.keys() - new.keys()), path=str(after))
    room = max_bytes
    diffs = list[str]()
    for name in sorted(new):
        if new[name].stat().st_size > max_bytes or time.monotonic() >= give_up_at_s:
            change.left_out.append(name)
            continue
        content = new[name].read_bytes()
        previous = old[name].read_bytes() if name in old else None
        if content == previous:
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            room -= len(content)
            if room < 0:
                change.left_out.append(name)
            else:
                change.files[name] = _encode(content)
        diffs += _diff(name, previous or b"", content, is_new=previous is None)
    for name in change.deleted:
        diffs += _diff(name, old[name].read_bytes(), b"", is_new=False)
    text = "".join(diffs)
    change.diff = text if len(text) <= max_bytes else f"{text[:max_bytes]}\n[... the rest is left out ...]\n"
    return change


def _walk(folder: Path, leave_out: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        relative = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if not matches(f"{(relative / name).as_posix()}/", leave_out)]
        for name in names:
            path = Path(place, name)
            label = (relative / name).as_posix()
            if is_text(label) and is_regular(path) and not matches(label, leave_out):
                yield label, path


def is_regular(path: Path) -> bool:
    """Return whether this is a regular file, not a link or a special file."""
    return stat.S_ISREG(path.lstat().st_mode)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a path, or its last part, matches a pattern; folders end with a slash."""
    last = f"{PurePosixPath(name).name}/" if name.endswith("/") else PurePosixPath(name).name
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(last, pattern) for pattern in patterns)


def _diff(name: str, old: bytes, new: bytes, *, is_new: bool) -> list[str]:
    if max(len(old), len(new)) > _MAX_DIFFED_BYTES or b"\0" in old + new:
        return [f"Binary or long file {name} differs\n"]
    was, now = (_split_lines(content.decode("utf-8", errors="replace")) for content in (old, new))
    names = ("/dev/null" if is_new else f"a/{name}", f"b/{name}" if new or is_new else "/dev/null")
    diff = difflib.unified_diff(was, now, *names)
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff]


def _split_lines(text: str) -> list[str]:
    """Split a text at line feeds only, as `patch` does; `str.splitlines` also splits elsewhere."""
    *lines, rest = text.split("\n")
    return [f"{line}\n" for line in lines] + ([rest] if rest else [])


def _encode(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _decode(name: str, content: str | Mapping[str, Any]) -> bytes:
    if isinstance(content, str):
        return content.encode()
    try:
        return base64.b64decode(content["base64"], validate=True)
    except (KeyError, TypeError, binascii.Error) as error:
        raise WorkspaceError(
            f"the workspace file {name!r} of the task is neither text nor base64.\n"
            'hint: write it as "text" or {"base64": "..."}'
        ) from error


def _check_relative(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise WorkspaceError(
            f"the workspace file {name!r} of the task is outside the workspace.\nhint: use paths below the workspace"
        )
    return name
