# SPDX-License-Identifier: Apache-2.0
"""The folder that a program works in: what a task puts there, and what the program has made of it.

A workspace comes as files in the row, or in the reply of `/seed_session`; as a folder of this machine; or as a git
bundle. What is handed to the verifier is bounded, and holds regular files only.
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

_LONGEST_DIFFED_BYTES = 256 * 1024
_GIT_TIMEOUT_S = 120


class WorkspaceError(GymError):
    """A task's workspace cannot be made."""


class Workspace(BaseModel):
    """What a task puts into the folder."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    """Contents by relative path: text, or `{"base64": ...}`."""
    folder: str | None = None
    """A folder of this machine, which is copied."""
    git_bundle: str | None = None
    """A file made by `git bundle create`, which is cloned."""


class WorkspaceChange(BaseModel):
    """What a program has made of its workspace."""

    diff: str = ""
    """The changes of text files, as `diff -u` shows them."""
    files: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    """Files that are new or changed, in full."""
    deleted: list[str] = Field(default_factory=list)
    left_out: list[str] = Field(default_factory=list)
    """Files for which there was no room in `files`."""
    path: str | None = None
    """The whole workspace on this machine, while it is verified."""


def read_workspace(given: Any) -> Workspace:
    """Return what a row, or a resources server, says of the workspace."""
    try:
        return Workspace.model_validate(given)
    except ValidationError as error:
        raise WorkspaceError(
            f"the workspace of the task cannot be read: {error}\n"
            'hint: {"files": {"PATH": "text"}}, {"folder": "PATH"} or {"git_bundle": "PATH"}'
        ) from error


def write_workspace(workspace: Workspace, target: Path) -> None:
    """Put what the task says into the folder `target`."""
    target.mkdir(parents=True, exist_ok=True)
    if workspace.folder is not None:
        if not Path(workspace.folder).is_dir():
            raise WorkspaceError(f"the workspace folder {workspace.folder!r} of the task does not exist")
        shutil.copytree(workspace.folder, target, symlinks=True, dirs_exist_ok=True)
    if workspace.git_bundle is not None:
        clone = ["git", "clone", "--quiet", str(Path(workspace.git_bundle).absolute()), str(target)]
        done = subprocess.run(clone, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise WorkspaceError(
                f"the git bundle {workspace.git_bundle!r} of the task cannot be cloned: {done.stderr.strip()}\n"
                "hint: `git bundle create FILE HEAD` makes one"
            )
    for name, content in workspace.files.items():
        path = target / _check_relative(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_decode(name, content))


def copy_workspace(source: Path, target: Path, max_bytes: int) -> list[str]:
    """Copy what a program has left; return the names of the files that are not copied.

    Left out are devices and the like, links that lead out of the workspace, what cannot be read, and what is more than
    `max_bytes`: files with holes may be larger than the disk.
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
    """Return whether a link is relative and leads to a place below `folder`."""
    leads_to = os.readlink(link)
    within = os.path.normpath(link.parent.relative_to(folder) / leads_to)
    return not os.path.isabs(leads_to) and within.split("/")[0] != ".."


def collect_change(
    before: Path, after: Path, *, leave_out: Sequence[str], patterns: Sequence[str], max_bytes: int
) -> WorkspaceChange:
    """Compare two states of a workspace.

    `leave_out` are patterns of files that do not count, `patterns` of those that are handed over in full, of which
    `max_bytes` have room.
    """
    old, new = _list_files(before, leave_out), _list_files(after, leave_out)
    change = WorkspaceChange(deleted=sorted(old.keys() - new.keys()), path=str(after))
    room, diffs = max_bytes, list[str]()
    for name in sorted(new):
        content = new[name].read_bytes() if new[name].stat().st_size <= max_bytes else None
        if content is None:
            change.left_out.append(name)
            continue
        if name in old and old[name].read_bytes() == content:
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            room -= len(content)
            if room < 0:
                change.left_out.append(name)
            else:
                change.files[name] = _encode(content)
        diffs += _diff(name, old[name].read_bytes() if name in old else b"", content, is_new=name not in old)
    for name in change.deleted:
        diffs += _diff(name, old[name].read_bytes(), b"", is_new=False)
    text = "".join(diffs)
    change.diff = text if len(text) <= max_bytes else f"{text[:max_bytes]}\n[... the rest is left out ...]\n"
    return change


def _list_files(folder: Path, leave_out: Sequence[str]) -> dict[str, Path]:
    return dict(_walk(folder, leave_out))


def _walk(folder: Path, leave_out: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        relative = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if not matches(f"{(relative / name).as_posix()}/", leave_out)]
        for name in names:
            path, label = Path(place, name), (relative / name).as_posix()
            if is_regular(path) and not matches(label, leave_out):
                yield label, path


def is_regular(path: Path) -> bool:
    """Return whether this is a file, and neither a link nor anything special."""
    return stat.S_ISREG(path.lstat().st_mode)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a path, or its last part, fits a pattern; folders end with a slash."""
    last = f"{PurePosixPath(name).name}/" if name.endswith("/") else PurePosixPath(name).name
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(last, pattern) for pattern in patterns)


def _diff(name: str, old: bytes, new: bytes, *, is_new: bool) -> list[str]:
    if max(len(old), len(new)) > _LONGEST_DIFFED_BYTES or b"\0" in old + new:
        return [f"Binary or long file {name} differs\n"]
    was, now = (_split_lines(content.decode("utf-8", errors="replace")) for content in (old, new))
    names = ("/dev/null" if is_new else f"a/{name}", f"b/{name}" if new or is_new else "/dev/null")
    diff = difflib.unified_diff(was, now, *names)
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff]


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text, which end at line feeds only: `patch` knows no others, `str.splitlines` does."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


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
            f"the file {name!r} of the task's workspace is neither text nor base64.\n"
            'hint: write it as "text" or {"base64": "..."}'
        ) from error


def _check_relative(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise WorkspaceError(
            f"the file {name!r} of the task's workspace lies outside of it.\nhint: use paths below the workspace"
        )
    return name
