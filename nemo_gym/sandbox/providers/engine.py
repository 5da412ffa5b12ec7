# SPDX-License-Identifier: Apache-2.0
"""What the container engines share: one client program that enters a running container to run something in it.

Ending the client does not end what it started inside. So every command carries a mark in its environment, and whoever
ends it early looks for the mark inside the container and kills what bears it.
"""

import asyncio
import logging
import os
import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from nemo_gym.sandbox.providers.base import (
    SandboxConfigError,
    SandboxConfigTypeError,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxHandle,
    SandboxPtySpec,
)
from nemo_gym.sandbox.providers.commands import SHELL, CommandProvider, SandboxCommand
from nemo_gym.sandbox.providers.processes import DEVNULL, Completed, run_program
from nemo_gym.sandbox.providers.terminals import TerminalSession, open_terminal

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
PROBE_INTERVAL_S = 0.5

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class ProbeConfig:
    """How a new sandbox shows that it works before anybody gets it."""

    command: str = "echo ready"
    """Must end with return code 0."""
    expected_stdout: str = "ready"
    """Must be part of what the command prints."""
    timeout_s: float = 30
    """How long one try may take."""
    deadline_s: float | None = None
    """How long to try again after failures; None for one failure to be the end."""
    stable_count: int = 1
    """How many tries in a row must succeed."""
    stable_delay_s: float = 0
    """Pause between two tries that succeed."""


class EngineProvider(CommandProvider):
    """Commands through an engine's client program, which a subclass knows how to address."""

    def __init__(
        self,
        executable: str,
        *,
        probe: ProbeConfig,
        concurrency: int,
        default_timeout_s: float | None,
        max_output_bytes: int,
        transfer_timeout_s: float,
    ) -> None:
        super().__init__(
            max_output_bytes=max_output_bytes,
            transfer_timeout_s=transfer_timeout_s,
            default_timeout_s=default_timeout_s,
        )
        self._executable = executable
        self._probe_config = probe
        self._concurrency = concurrency
        # One for each event loop: a provider may be shared by sandboxes on several.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @abstractmethod
    def _build_entry(
        self, handle: SandboxHandle, command: SandboxCommand, *, interactive: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """Return arguments of the client that run `command` inside, and what to add to the client's own environment."""

    @abstractmethod
    async def _find_cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        """Return why a command ended that nobody here ended; raise if the container is not there to ask."""

    async def _run(self, handle: SandboxHandle, command: SandboxCommand) -> tuple[Completed, str | None]:
        mark = uuid4().hex
        marked = replace(command, env={**command.env, EXEC_MARK: mark})
        arguments, client_env = self._build_entry(handle, marked, interactive=command.stdin is not None)
        slots = self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._concurrency))
        async with slots:
            completed = await run_program(
                [self._executable, *arguments],
                env={**os.environ, **client_env},
                timeout_s=command.timeout_s,
                stdin=DEVNULL if command.stdin is None else command.stdin.fileno(),
                stdout=None if command.stdout is None else command.stdout.fileno(),
                max_output_bytes=self._max_output_bytes,
                interrupt=lambda: self._kill_marked(handle, mark, command.user),
            )
        return completed, completed.ended_by or await self._find_cause(handle, completed)

    async def _open_terminal(
        self, handle: SandboxHandle, argv: Sequence[str], spec: SandboxPtySpec, env: Mapping[str, str]
    ) -> TerminalSession:
        mark = uuid4().hex
        command = SandboxCommand(argv, None, spec.cwd, {**env, EXEC_MARK: mark}, spec.user, wants_terminal=spec.pty)
        arguments, client_env = self._build_entry(handle, command, interactive=True)
        return await open_terminal(
            [self._executable, *arguments],
            spec,
            env={**os.environ, **client_env},
            controlling=True,
            interrupt=lambda: self._kill_marked(handle, mark, spec.user),
        )

    async def _kill_marked(self, handle: SandboxHandle, mark: str, user: str | int | None) -> None:
        # As the same user: without the ptrace capability not even root may read the environment of somebody else.
        command = SandboxCommand([SHELL, "-c", KILL_MARKED, "sandbox", mark], CONTROL_TIMEOUT_S, cwd="/", user=user)
        arguments, client_env = self._build_entry(handle, command)
        killed = await self._run_client(arguments, client_env)
        if killed.return_code != 0:
            LOG.warning(
                "processes of a command may still run in sandbox %r: killing them gave exit code %s %s",
                handle.sandbox_id,
                killed.return_code,
                quote_end(killed.stderr),
            )

    async def _run_client(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = CONTROL_TIMEOUT_S
    ) -> Completed:
        """Run the client program for a purpose of our own."""
        return await run_program([self._executable, *arguments], env={**os.environ, **(env or {})}, timeout_s=timeout_s)

    async def _start(self, arguments: Sequence[str], env: Mapping[str, str], what: str, timeout_s: float) -> None:
        """Run the client to make something; the error says what to do if it cannot."""
        completed = await self._run_client(arguments, env, timeout_s)
        if completed.ended_by == "timeout":
            raise SandboxCreateError(
                f"cannot make {what}: not ready after {timeout_s:g} s\n{quote_end(completed.stderr)}\n"
                "hint: raise `ready_timeout_s` of the sandbox spec if the image is large, or pull it beforehand"
            )
        if completed.return_code != 0:
            failed = f"{self._executable} gave exit code {completed.return_code}"
            raise SandboxCreateError(
                f"cannot make {what}: {failed}\n{quote_end(completed.stderr)}\n"
                "hint: does the engine work here, and is the name of the image right?"
            )

    async def _verify(self, handle: SandboxHandle, what: str) -> None:
        """Run the probe until it has succeeded often enough in a row."""
        probe = self._probe_config
        loop = asyncio.get_running_loop()
        give_up = loop.time() + (probe.deadline_s or 0)
        in_a_row = 0
        while in_a_row < probe.stable_count:
            result = await self.exec(handle, probe.command, timeout_s=probe.timeout_s)
            if result.return_code == 0 and probe.expected_stdout in (result.stdout or ""):
                in_a_row += 1
                await asyncio.sleep(probe.stable_delay_s if in_a_row < probe.stable_count else 0)
                continue
            in_a_row = 0
            if loop.time() >= give_up:
                raise SandboxCreateVerificationError(
                    f"cannot make {what}: it did not answer its probe {probe.command!r}\n"
                    f"return code {result.return_code}, output {result.stdout!r}, {result.stderr}\n"
                    "hint: set `probe` of the provider if the image needs another command or more time"
                )
            await asyncio.sleep(PROBE_INTERVAL_S)


def find_program(program: str, install_hint: str) -> str:
    """Return the path of an engine's client program."""
    found = shutil.which(program)
    if found is None:
        raise SandboxCreateError(f"the program {program!r} is not there, or cannot be run\nhint: {install_hint}")
    return found


def read_settings(kind: type[Settings], given: Settings | Mapping[str, Any] | None, provider: str) -> Settings:
    """Return the settings (a dataclass) that a config gives as they are, as a mapping, or not at all."""
    if given is None or isinstance(given, Mapping):
        return override(kind(), given or {}, provider)
    if not isinstance(given, kind):
        raise SandboxConfigTypeError(
            f"settings of sandbox provider {provider!r} must be a mapping or a {kind.__name__}, "
            f"not {type(given).__name__}"
        )
    return given


def override(settings: Settings, options: Mapping[str, Any], provider: str) -> Settings:
    """Return `settings` (a dataclass) with `options` in place of its own values."""
    names = [entry.name for entry in fields(settings)]  # type: ignore[arg-type]
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise SandboxConfigError(
            f"sandbox provider {provider!r} has no settings {', '.join(map(repr, unknown))} in "
            f"{type(settings).__name__}\nit has: {', '.join(names)}"
        )
    return type(settings)(**{name: options.get(name, getattr(settings, name)) for name in names})


def quote_end(output: bytes, last_bytes: int = 2000) -> str:
    """Return the end of what a program wrote, for a message."""
    return output[-last_bytes:].decode("utf-8", errors="replace").strip()
