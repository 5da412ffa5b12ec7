# SPDX-License-Identifier: Apache-2.0
"""Install the programs that agents run from npm or PyPI: each set of packages once, in a folder named after its hash.

As with virtual environments, a folder counts only once it is marked complete, and whoever builds it holds its lock.
"""

import asyncio
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym._servers.installing.installers import find_uv, run_tool
from nemo_gym._servers.installing.venv_store import discard, has_mark, lock_venv, mark_complete, python_in
from nemo_gym.errors import GymError

_KEY_LENGTH = 20
_TIMEOUT_S = 1800.0


class ProgramInstallError(GymError):
    """A program's packages could not be installed."""


@dataclass(frozen=True)
class InstalledProgram:
    """Where the programs of a set of packages are installed."""

    script_folders: tuple[Path, ...] = ()
    """The folders to put at the front of PATH."""
    folders: tuple[Path, ...] = ()
    """All folders that the programs need, and no others."""


def find_program_folder(npm: Sequence[str], pypi: Sequence[str], cache_dir: Path) -> Path:
    """Return the folder where these packages are, or will be, installed."""
    local = [_hash_content(Path(name)) for name in sorted([*npm, *pypi]) if Path(name).exists()]
    parts = {
        "npm": sorted(npm),
        "pypi": sorted(pypi),
        "local": local,
        "python": sys.version,
        "platform": platform.platform(),
    }
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_KEY_LENGTH]
    return (cache_dir / "programs" / key).absolute()


async def install_program(
    npm: Sequence[str], pypi: Sequence[str], cache_dir: Path, on_line: Callable[[str], None]
) -> InstalledProgram:
    """Install the packages unless they are already installed, and return where their programs are."""
    if not npm and not pypi:
        return InstalledProgram()
    folder = find_program_folder(npm, pypi, cache_dir)
    if not has_mark(folder):
        names = ", ".join([*npm, *pypi])
        async with lock_venv(
            folder, _TIMEOUT_S, lambda: on_line(f"waiting for another process to install {names}")
        ) as lock:
            if not has_mark(folder):
                on_line(f"installing {names}")
                await _install(npm, pypi, folder, lock, on_line)
    return _locate_programs(npm, pypi, folder)


async def _install(
    npm: Sequence[str], pypi: Sequence[str], folder: Path, lock: int, on_line: Callable[[str], None]
) -> None:
    async def run(*words: str | Path) -> None:
        await run_tool(words, cwd=folder, timeout_s=_TIMEOUT_S, inherited_fd=lock, on_line=on_line)

    await asyncio.to_thread(discard, folder)
    await asyncio.to_thread(folder.mkdir, parents=True)
    try:
        if npm:
            # Copy local packages: a link to one would be broken inside a sandbox.
            options = ["--install-links", "--no-audit", "--no-fund", "--no-update-notifier"]
            await run(_find_npm(npm), "install", "--prefix", folder, *options, *npm)
        if pypi:
            uv = find_uv()
            venv = folder / "venv"
            await run(uv, "venv", "--no-project", "--python", sys.executable, venv)
            # Programs cannot write to this folder, so they would recompile their modules on every run.
            await run(uv, "pip", "install", "--compile-bytecode", "--python", python_in(venv), *pypi)
        # Sandboxed programs run as another user.
        await asyncio.to_thread(_make_readable, folder)
        mark_complete(folder, {"npm": list(npm), "pypi": list(pypi)})
    except BaseException as error:
        await asyncio.to_thread(discard, folder)
        if isinstance(error, GymError | OSError):
            raise ProgramInstallError(
                f"{', '.join([*npm, *pypi])} could not be installed.\n{error}\n"
                "hint: check the names and versions under `install`, and that the package registry is reachable"
            ) from error
        raise


def _hash_content(path: Path) -> str:
    """Return a hash of a local package, a file or a folder."""
    digest = hashlib.sha256()
    files = [path]
    if not path.is_file():
        files = sorted(one for one in path.rglob("*") if one.is_file())
    for file in files:
        digest.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return digest.hexdigest()


def _find_npm(npm: Sequence[str]) -> str:
    found = shutil.which("npm")
    if found is None:
        raise ProgramInstallError(
            f"{', '.join(npm)} needs npm, which is not on the PATH.\nhint: install Node.js 20 or newer with npm"
        )
    return found


def _locate_programs(npm: Sequence[str], pypi: Sequence[str], folder: Path) -> InstalledProgram:
    scripts = list[Path]()
    folders = [folder]
    if npm:
        scripts.append(folder / "node_modules" / ".bin")
        if node := shutil.which("node"):
            scripts.append(Path(node).parent)
            folders.append(Path(node).resolve().parent.parent)
    if pypi:
        scripts.append(folder / "venv" / "bin")
        folders.append(Path(sys.base_prefix))
    return InstalledProgram(tuple(scripts), tuple(folders))


def _make_readable(folder: Path) -> None:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
