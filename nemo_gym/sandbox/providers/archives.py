# SPDX-License-Identifier: Apache-2.0
"""Folders as one stream of bytes, to and from a sandbox.

What comes out of a sandbox was made by untrusted code, so nothing in it may be written, or point, outside the folder it
is unpacked to. Owners, times and special files are left out.
"""

import contextlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO


def pack(source: Path) -> IO[bytes]:
    """An archive of all that is in a folder, ready to be read."""
    with contextlib.ExitStack() as on_failure:
        archive = on_failure.enter_context(tempfile.TemporaryFile())
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(source, arcname=".")
        archive.seek(0)
        on_failure.pop_all()
    return archive


def unpack(archive: IO[bytes], target: Path) -> None:
    """Bring what is in `archive` to the folder `target`, all of it or nothing; what else is there stays."""
    archive.seek(0)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as name:
        folder = Path(os.path.realpath(name))
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            _extract(tar, folder)
        target.mkdir(exist_ok=True)
        for entry in folder.iterdir():
            _merge(entry, target / entry.name)


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    links: dict[Path, str] = {}
    for member in tar:
        path = _inside(folder, member.name)
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            links[path] = member.linkname.partition("\0")[0]
        else:
            _write(tar, member, path, folder)
    # Links come last, so that nothing is written through one, and are judged together, as one may lead over others.
    for path, linked in links.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(linked)
    for path in links:
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            raise tarfile.TarError(f"the link {str(path.relative_to(folder))!r} points outside the folder")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, folder: Path) -> None:
    """Write a file. A hard link is a copy of a file that came before it; the library would follow links in circles."""
    content: IO[bytes] | None = None
    if member.isreg():
        content = tar.extractfile(member)
    elif member.islnk() and _inside(folder, member.linkname).is_file():
        content = _inside(folder, member.linkname).open("rb")
    if content is None:
        raise tarfile.TarError(f"{member.name!r} is neither a file, nor a folder, nor a link to one in the folder")
    with content:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as out:
            shutil.copyfileobj(content, out)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _inside(folder: Path, name: str) -> Path:
    path = Path(os.path.normpath(folder / name))
    if "\0" in name or not path.is_relative_to(folder):
        raise tarfile.TarError(f"{name!r} is not a name in the folder")
    return path


def _merge(source: Path, target: Path) -> None:
    """Move `source` to `target`; folders that are there already keep what the source does not name."""
    if source.is_dir() and not source.is_symlink() and target.is_dir() and not target.is_symlink():
        for entry in source.iterdir():
            _merge(entry, target / entry.name)
        return
    os.replace(source, target)
