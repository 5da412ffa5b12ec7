# SPDX-License-Identifier: Apache-2.0
"""Commands and file transfer for every provider that can run a program inside a sandbox.

Commands, uploads and downloads all run inside, so they see the same files with the same rights: a symbolic link that
model-written code left in a sandbox cannot lead outside it.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from nemo_gym.sandbox.providers.base import (
    DEFAULT_EXEC_TIMEOUT_S,
    FAILED_RETURN_CODE,
    KILLED_RETURN_CODE,
    SandboxConfigError,
    SandboxError,
    SandboxExecResult,
    SandboxExpiredError,
    SandboxHandle,
    SandboxPtyError,
    SandboxPtySpec,
    SandboxTransferError,
    SandboxUnsupportedError,
    make_timeout_result,
    stringify_env,
)
from nemo_gym.sandbox.providers.processes import Completed
from nemo_gym.sandbox.providers.terminals import TerminalSession

SHELL = "/bin/sh"
# Bash if there is one, because commands are written for it; the command is one argument, never quoted again.
RUN_COMMAND = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; fi; exec /bin/sh -c "$1"'
RECEIVE_FILE = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1" && chmod "$2" "$1"'
RECEIVE_FOLDER = 'mkdir -p -- "$1" && exec tar -C "$1" -xf -'
INTERACTIVE_SHELL = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"
IS_FOLDER = 21
SEND_FILE = f'if [ -d "$1" ]; then exit {IS_FOLDER}; fi; exec cat -- "$1"'
SEND_FOLDER = 'exec tar -C "$1" -cf - .'


@dataclass(frozen=True)
class SandboxCommand:
    """A program to run in a sandbox, and how."""

    argv: Sequence[str]
    timeout_s: float | None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | int | None = None
    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    wants_terminal: bool = False


class CommandProvider(ABC):
    """Commands and file transfer for a provider that implements `_run`."""

    name: str

    def __init__(
        self, *, max_output_bytes: int, transfer_timeout_s: float, default_timeout_s: float | None = None
    ) -> None:
        self._max_output_bytes = max_output_bytes
        self._transfer_timeout_s = transfer_timeout_s
        self._default_timeout_s = default_timeout_s
        self._terminals: dict[tuple[str, str], TerminalSession] = {}

    @abstractmethod
    async def _run(self, handle: SandboxHandle, command: SandboxCommand) -> tuple[Completed, str | None]:
        """Run a command in the sandbox; return how it ended, and what cut it short, if anything."""

    @abstractmethod
    async def _open_terminal(
        self, handle: SandboxHandle, argv: Sequence[str], spec: SandboxPtySpec, env: Mapping[str, str]
    ) -> TerminalSession:
        """Start `argv` in the sandbox, in the terminal that `spec` describes."""

    @abstractmethod
    def _describe(self, handle: SandboxHandle) -> dict[str, Any]:
        """Return what `_reconnect` needs besides the id, as JSON values and without secrets."""

    @abstractmethod
    async def _reconnect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        """Return the handle of a running sandbox that `_describe` described."""

    def _translate_path(self, handle: SandboxHandle, path: str) -> str:
        """Return `path` as programs in the sandbox see it."""
        return path

    def _get_shell(self, handle: SandboxHandle) -> Sequence[str]:
        """Return the arguments to put before a command."""
        return (SHELL, "-c", RUN_COMMAND, "sandbox")

    def _build_argv(self, handle: SandboxHandle, command: str | Sequence[str]) -> list[str]:
        """Return the arguments that let the shell run `command`."""
        if not isinstance(command, str):
            command = shlex.join(command)
        return [*self._get_shell(handle), command]

    async def exec(
        self,
        handle: SandboxHandle,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, Any] | None = None,
        timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command; see `SandboxProvider.exec`."""
        variables = stringify_env(env)
        argv = self._build_argv(handle, command)
        if timeout_s is None:
            timeout_s = self._default_timeout_s
        try:
            completed, cause = await self._run(handle, SandboxCommand(argv, timeout_s, cwd, variables, user))
        except SandboxConfigError:
            raise
        except SandboxExpiredError as error:
            return SandboxExecResult(None, str(error), FAILED_RETURN_CODE, "timeout")
        except (SandboxError, OSError) as error:
            return SandboxExecResult(None, str(error), FAILED_RETURN_CODE, "sandbox")
        if cause == "timeout":
            return make_timeout_result(completed.stdout, completed.stderr)
        code = completed.return_code
        if cause is not None:
            code = KILLED_RETURN_CODE
        stdout = completed.stdout.decode("utf-8", errors="replace")
        stderr = completed.stderr.decode("utf-8", errors="replace")
        return SandboxExecResult(stdout, stderr, code, cause)

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file or folder into the sandbox; see `SandboxProvider.upload_file`."""
        source = Path(source_path)
        target = self._translate_path(handle, target_path)
        what = f"upload {str(source)!r} to {target_path!r}"
        try:
            content, script, mode = await asyncio.to_thread(_open_source, source)
        except OSError as error:
            raise SandboxTransferError(f"cannot {what}: {error}") from error
        with content:
            await self._transfer(handle, what, [SHELL, "-c", script, "sandbox", target, mode], stdin=content)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file or folder out of the sandbox; see `SandboxProvider.download_file`."""
        source = self._translate_path(handle, source_path)
        target = Path(target_path)
        what = f"download {source_path!r} to {str(target)!r}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.{uuid4().hex}.part")
            try:
                with part.open("x+b") as content:
                    argv = [SHELL, "-c", SEND_FILE, "sandbox", source]
                    code = await self._transfer(handle, what, argv, stdout=content, accepted=(0, IS_FOLDER))
                    if code == IS_FOLDER:
                        argv = [SHELL, "-c", SEND_FOLDER, "sandbox", source]
                        await self._transfer(handle, what, argv, stdout=content)
                        await asyncio.to_thread(unpack_folder, content, target)
                        return
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
        except (OSError, tarfile.TarError) as error:
            raise SandboxTransferError(f"cannot {what}: {error}") from error

    async def create_pty(self, handle: SandboxHandle, spec: SandboxPtySpec) -> TerminalSession:
        """Start a program in a terminal; see `SupportsSandboxPty.create_pty`."""
        command = spec.command
        if command is None:
            command = INTERACTIVE_SHELL
        env = stringify_env(spec.env)
        if spec.pty:
            env = {"TERM": "xterm", **env}
        session = await self._open_terminal(handle, self._build_argv(handle, command), spec, env)
        ended = [key for key, known in self._terminals.items() if known.has_ended]
        for key in ended:
            del self._terminals[key]
        self._terminals[handle.sandbox_id, session.pty_id] = session
        return session

    async def attach_pty(self, handle: SandboxHandle, pty_id: str) -> TerminalSession:
        """Return a terminal that this provider opened and that is still open."""
        session = self._terminals.get((handle.sandbox_id, pty_id))
        if session is None or session.has_ended:
            raise SandboxPtyError(
                f"sandbox {handle.sandbox_id!r} has no open terminal {pty_id!r} here\n"
                "hint: only the provider object that opened a terminal can find it, until it is closed"
            )
        return session

    async def _close_terminals(self, handle: SandboxHandle) -> None:
        """Close the terminals of a sandbox that is ending."""
        for key in [key for key in self._terminals if key[0] == handle.sandbox_id]:
            await self._terminals.pop(key).close()

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]:
        """Describe the sandbox; see `ConnectableProvider.serialize_handle`."""
        if scope is not None:
            raise SandboxUnsupportedError(
                f"sandbox provider {self.name!r} cannot limit a description to scope {scope!r}: whoever connects has "
                "full access\nhint: leave `scope` unset"
            )
        return {"schema": 1, "provider": self.name, "sandbox_id": handle.sandbox_id, "state": self._describe(handle)}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """Connect to a running sandbox; see `ConnectableProvider.connect`."""
        if descriptor.get("provider") != self.name:
            raise SandboxConfigError(
                f"the sandbox belongs to provider {descriptor.get('provider')!r}, not {self.name!r}\n"
                "hint: connect with the provider that created it"
            )
        return await self._reconnect(descriptor["sandbox_id"], descriptor["state"])

    async def _transfer(
        self,
        handle: SandboxHandle,
        what: str,
        argv: Sequence[str],
        *,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        accepted: Sequence[int] = (0,),
    ) -> int:
        command = SandboxCommand(argv, self._transfer_timeout_s, stdin=stdin, stdout=stdout)
        completed, cause = await self._run(handle, command)
        if cause is None and completed.return_code in accepted:
            return completed.return_code
        reason = completed.stderr.decode("utf-8", errors="replace").strip() or f"exit code {completed.return_code}"
        if cause is not None:
            reason = f"{cause}; {reason}"
        raise SandboxTransferError(f"cannot {what} (sandbox {handle.sandbox_id!r}): {reason}")


def _open_source(source: Path) -> tuple[IO[bytes], str, str]:
    """Return the content to send for a local file or folder, the script that receives it, and the file's mode."""
    if source.is_dir():
        return pack_folder(source), RECEIVE_FOLDER, ""
    content = source.open("rb")
    return content, RECEIVE_FILE, f"{os.fstat(content.fileno()).st_mode & 0o777:o}"


def pack_folder(source: Path) -> IO[bytes]:
    """Return an archive of everything in a folder, positioned at its start."""
    with contextlib.ExitStack() as on_failure:
        archive = on_failure.enter_context(tempfile.TemporaryFile())
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(source, arcname=".")
        archive.seek(0)
        on_failure.pop_all()
    return archive


def unpack_folder(archive: IO[bytes], target: Path) -> None:
    """Unpack all of `archive` or nothing into the folder `target`; other files there are kept.

    Untrusted code made the archive, so nothing in it may be written, or point, outside its folder.
    Owners, times and special files are left out.
    """
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
        path = _resolve_inside(folder, member.name)
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            links[path] = member.linkname.partition("\0")[0]
        else:
            _write_member(tar, member, path, folder)
    # Links come last, so that nothing is written through one. They are checked together: one may lead to another.
    for path, linked in links.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(linked)
    for path in links:
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            raise tarfile.TarError(f"the link {str(path.relative_to(folder))!r} points outside the folder")


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, folder: Path) -> None:
    """Write a file. A hard link becomes a copy of an earlier file; `tarfile` would follow cycles of links."""
    content: IO[bytes] | None = None
    if member.isreg():
        content = tar.extractfile(member)
    elif member.islnk() and _resolve_inside(folder, member.linkname).is_file():
        content = _resolve_inside(folder, member.linkname).open("rb")
    if content is None:
        raise tarfile.TarError(f"{member.name!r} is neither a file, nor a folder, nor a link to one in the folder")
    with content:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as out:
            shutil.copyfileobj(content, out)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _resolve_inside(folder: Path, name: str) -> Path:
    path = Path(os.path.normpath(folder / name))
    if "\0" in name or not path.is_relative_to(folder):
        raise tarfile.TarError(f"{name!r} is not a name in the folder")
    return path


def _merge(source: Path, target: Path) -> None:
    """Move `source` to `target`; existing folders keep what the source does not have."""
    if source.is_dir() and not source.is_symlink() and target.is_dir() and not target.is_symlink():
        for entry in source.iterdir():
            _merge(entry, target / entry.name)
        return
    os.replace(source, target)
