# SPDX-License-Identifier: Apache-2.0
"""What the container engines share: one client program that enters a running container to run something in it.

Ending the client does not end what it started inside. So every command carries a mark in its environment, and whoever
ends it early looks for the mark inside the container and kills what bears it.
"""

import logging
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import IO, Any, TypeVar
from uuid import uuid4

from nemo_gym.sandbox.providers.base import SandboxConfigError, SandboxCreateError, SandboxHandle
from nemo_gym.sandbox.providers.commands import SHELL, CommandProvider
from nemo_gym.sandbox.providers.processes import DEVNULL, Completed, run

LOG = logging.getLogger(__name__)

EXEC_MARK = "NEMO_GYM_EXEC_ID"
# Killing can race with forking: look again until a pass finds nothing. 127 without grep: nothing could be looked for.
KILL_MARKED = f"""
command -v grep >/dev/null 2>&1 || exit 127
passes=0
while [ "$passes" -lt 50 ]; do
  found=
  for folder in /proc/[0-9]*; do
    if grep -q "{EXEC_MARK}=$1" "$folder/environ" 2>/dev/null; then
      found=1
      kill -9 "-${{folder#/proc/}}" 2>/dev/null
      kill -9 "${{folder#/proc/}}" 2>/dev/null
    fi
  done
  [ -z "$found" ] && exit 0
  passes=$((passes + 1))
done
exit 1
"""
CONTROL_TIMEOUT_S = 60.0
DEFAULT_READY_TIMEOUT_S = 600.0

Settings = TypeVar("Settings")


class EngineProvider(CommandProvider):
    """Commands through an engine's client program, which a subclass knows how to address."""

    def __init__(self, executable: str, install_hint: str, *, max_output_bytes: int, transfer_timeout_s: float) -> None:
        super().__init__(max_output_bytes=max_output_bytes, transfer_timeout_s=transfer_timeout_s)
        self._executable = executable
        self._install_hint = install_hint

    @abstractmethod
    def _enter(
        self,
        handle: SandboxHandle,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        user: str | int | None,
        interactive: bool,
    ) -> tuple[list[str], dict[str, str]]:
        """Arguments of the client that run `argv` inside, and what to add to the client's own environment."""

    @abstractmethod
    async def _cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        """Why a command ended that nobody here ended; raises if the container is not there to ask."""

    async def _run(
        self,
        handle: SandboxHandle,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None,
        user: str | int | None = None,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
    ) -> tuple[Completed, str | None]:
        mark = uuid4().hex
        marked = {**(env or {}), EXEC_MARK: mark}
        interactive = stdin is not None
        arguments, client_env = self._enter(handle, argv, cwd=cwd, env=marked, user=user, interactive=interactive)
        completed = await run(
            [self._executable, *arguments],
            env={**os.environ, **client_env},
            timeout_s=timeout_s,
            stdin=DEVNULL if stdin is None else stdin.fileno(),
            stdout=None if stdout is None else stdout.fileno(),
            max_output_bytes=self._max_output_bytes,
            interrupt=lambda: self._kill_marked(handle, mark, user),
        )
        return completed, completed.ended_by or await self._cause(handle, completed)

    async def _kill_marked(self, handle: SandboxHandle, mark: str, user: str | int | None) -> None:
        # As the same user: without the ptrace capability not even root may read the environment of somebody else.
        argv = [SHELL, "-c", KILL_MARKED, "sandbox", mark]
        arguments, client_env = self._enter(handle, argv, cwd="/", env={}, user=user, interactive=False)
        killed = await self._client(arguments, client_env)
        if killed.return_code != 0:
            LOG.warning(
                "processes of a command may still run in sandbox %r: killing them gave exit code %s %s",
                handle.sandbox_id,
                killed.return_code,
                tail(killed.stderr),
            )

    async def _client(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = CONTROL_TIMEOUT_S
    ) -> Completed:
        """Run the client program for a purpose of our own."""
        return await run([self._executable, *arguments], env={**os.environ, **(env or {})}, timeout_s=timeout_s)

    async def _start(self, arguments: Sequence[str], env: Mapping[str, str], what: str, timeout_s: float) -> None:
        """Run the client to make something; the error says what to do if it cannot."""
        try:
            completed = await self._client(arguments, env, timeout_s)
        except (FileNotFoundError, PermissionError) as error:
            raise SandboxCreateError(
                f"cannot make {what}: the program {self._executable!r} cannot be run ({error.strerror})\n"
                f"hint: {self._install_hint}"
            ) from error
        if completed.ended_by == "timeout":
            raise SandboxCreateError(
                f"cannot make {what}: not ready after {timeout_s:g} s\n{tail(completed.stderr)}\n"
                "hint: raise `ready_timeout_s` of the sandbox spec if the image is large, or pull it beforehand"
            )
        if completed.return_code != 0:
            failed = f"{self._executable} gave exit code {completed.return_code}"
            raise SandboxCreateError(f"cannot make {what}: {failed}\n{tail(completed.stderr)}")


def override(settings: Settings, options: Mapping[str, Any], provider: str) -> Settings:
    """`settings` (a dataclass) with `options` in place of its own values."""
    names = [entry.name for entry in fields(settings)]  # type: ignore[arg-type]
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise SandboxConfigError(
            f"sandbox provider {provider!r} has no create settings {', '.join(map(repr, unknown))}\n"
            f"it has: {', '.join(names)}"
        )
    return type(settings)(**{name: options.get(name, getattr(settings, name)) for name in names})


def tail(output: bytes, last_bytes: int = 2000) -> str:
    """The end of what a program wrote, for a message."""
    return output[-last_bytes:].decode("utf-8", errors="replace").strip()
