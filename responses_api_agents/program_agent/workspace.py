# SPDX-License-Identifier: Apache-2.0
"""The folder that a program works in: what a task puts there, and what the program changes.

A workspace is given as files in the row or in the reply of `/seed_session`, as a folder of this machine, or as a git
bundle. What the verifier gets is bounded, and has only regular files.
"""

import base64
import binascii
import difflib
import fnmatch
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.errors import GymError

_MAX_DIFFED_BYTES = 256 * 1024
_GIT_TIMEOUT_S = 120


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


def copy_workspace(source: Path, target: Path, max_bytes: int) -> list[str]:
    """Copy the workspace that a program left; return the names of the files that were not copied.

    These are special files such as devices, links that lead out of the workspace, unreadable files, and any that would
    exceed `max_bytes` in total: sparse files may be larger than the disk.
    """
    left_out, room = list[str](), max_bytes
    target.mkdir()

    def leave_out(error: OSError) -> None:
        left_out.append(f"{os.path.relpath(error.filename, source)}/")

    for place, folders, names in os.walk(source, onerror=leave_out):
        here = Path(place)
        for name in [*folders, *names]:
            path = here / name
            label = path.relative_to(source)
            try:
                status = path.lstat()
                if stat.S_ISDIR(status.st_mode):
                    (target / label).mkdir()
                elif stat.S_ISLNK(status.st_mode) and _stays_within(path, source):
                    (target / label).symlink_to(os.readlink(path))
                elif stat.S_ISREG(status.st_mode) and status.st_size <= room:
                    shutil.copy(path, target / label, follow_symlinks=False)
                    room -= status.st_size
                else:
                    left_out.append(label.as_posix())
            except OSError:
                left_out.append(label.as_posix())
    return sorted(left_out)


def _stays_within(link: Path, folder: Path) -> bool:
    """Return whether a link is relative and leads to a path below `folder`."""
    target = os.readlink(link)
    within = os.path.normpath(link.parent.relative_to(folder) / target)
    return not os.path.isabs(target) and within.split("/")[0] != ".."


def collect_change(
    before: Path, after: Path, *, leave_out: Sequence[str], patterns: Sequence[str], max_bytes: int
) -> WorkspaceChange:
    """Compare two states of a workspace.

    `leave_out` are patterns of files to ignore, `patterns` of those to return in full, up to `max_bytes`.
    """
    old, new = dict(_walk(before, leave_out)), dict(_walk(after, leave_out))
    change = WorkspaceChange(deleted=sorted(old.keys() - new.keys()), path=str(after))
    room, diffs = max_bytes, list[str]()
    for name in sorted(new):
        if new[name].stat().st_size > max_bytes:
            change.left_out.append(name)
            continue
        content, previous = new[name].read_bytes(), old[name].read_bytes() if name in old else None
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
            path, label = Path(place, name), (relative / name).as_posix()
            if is_regular(path) and not matches(label, leave_out):
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
