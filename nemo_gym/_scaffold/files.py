# SPDX-License-Identifier: Apache-2.0
"""The files of a scaffold: read from the templates of this package, filled in, and written without overwriting.

In a template `@@KEY@@` stands for a value, in paths too; `dot_x.tmpl` becomes `.x`.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from nemo_gym._util.files import write_atomically
from nemo_gym.errors import GymError

_SUFFIX = ".tmpl"


class ScaffoldError(GymError):
    """A scaffold cannot be written."""


@dataclass(frozen=True)
class NewFile:
    """A file to be written, relative to the folder in which the user works."""

    path: PurePosixPath
    content: str


def render_template(template: str, folder: str, values: Mapping[str, str]) -> list[NewFile]:
    """Return the files of `template`, filled in with `values`, as files of `folder`."""
    root = resources.files("nemo_gym._scaffold") / "templates" / template
    files = []
    for inner, source in _walk(root, PurePosixPath()):
        name = inner.name.removesuffix(_SUFFIX)
        path = inner.with_name(f".{name.removeprefix('dot_')}" if name.startswith("dot_") else name)
        files.append(NewFile(folder / PurePosixPath(_fill_in(str(path), values)), _fill_in(source.read_text(), values)))
    return sorted(files, key=lambda file: file.path)


def _walk(folder: Traversable, inner: PurePosixPath) -> list[tuple[PurePosixPath, Traversable]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, inner / entry.name)
        elif entry.name.endswith(_SUFFIX):
            found.append((inner / entry.name, entry))
    return found


def _fill_in(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@@(\w+)@@", lambda match: values[match[1]], text)


def write_missing(root: Path, files: Sequence[NewFile]) -> list[PurePosixPath]:
    """Write those of `files` that are not there; if one is there with another content, write nothing at all."""
    conflicts = [file.path for file in files if _differs(root / file.path, file.content)]
    if conflicts:
        listed = "\n".join(f"  {path}" for path in conflicts)
        raise ScaffoldError(
            f"these files are there already, with another content; nothing was written:\n{listed}\n"
            "hint: choose another name, or move them away"
        )
    written = list[PurePosixPath]()
    try:
        for file in files:
            if not (root / file.path).exists():
                write_atomically(root / file.path, file.content)
                written.append(file.path)
    except OSError as error:
        _take_back(root, written)
        raise ScaffoldError(f"cannot write {error.filename or file.path}: {error.strerror}") from error
    return written


def _differs(path: Path, content: str) -> bool:
    try:
        return path.is_dir() or path.read_bytes() != content.encode()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ScaffoldError(f"cannot read {path}: {error.strerror}") from error


def _take_back(root: Path, written: Sequence[PurePosixPath]) -> None:
    """Remove what a failed attempt has written, and the folders that it left empty."""
    for path in written:
        (root / path).unlink(missing_ok=True)
    for folder in sorted({parent for path in written for parent in path.parents}, key=str, reverse=True):
        with contextlib.suppress(OSError):
            (root / folder).rmdir()
