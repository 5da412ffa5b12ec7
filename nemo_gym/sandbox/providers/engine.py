# SPDX-License-Identifier: Apache-2.0
"""What the container engines share: a client program that creates containers and runs commands inside them.

Ending the client does not end what it started inside. So every command has a mark in its environment, and to end a
command early we find and kill the processes with that mark inside the container.
"""

import asyncio
import contextlib
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
    SandboxError,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxPtySpec,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.command_provider import SHELL, CommandProvider, SandboxCommand
from nemo_gym.sandbox.providers.processes import DEVNULL, Completed, run_program
from nemo_gym.sandbox.providers.terminals import TerminalSession, open_terminal

LOG = logging.getLogger(__name__)

EXEC_MARK = "NEMO_GYM_EXEC_ID"
# Killing can race with forking, so repeat until a pass finds nothing. Exit code 127: the container has no grep.
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
    """The command that checks a new sandbox before it is handed out."""

    command: str = "echo ready"
    """Must end with return code 0."""
    expected_stdout: str = "ready"
    """Must be part of the output."""
    timeout_s: float = 30
    """How long one attempt may take."""
    deadline_s: float | None = None
    """How long to retry after a failure; None to give up at once."""
    stable_count: int = 1
    """How many attempts in a row must succeed."""
    stable_delay_s: float = 0
    """Pause after a successful attempt."""


class EngineProvider(CommandProvider):
    """Sandboxes run through an engine's client program; a subclass builds its arguments."""

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
        # One per event loop: sandboxes on several loops may share a provider.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @abstractmethod
    def _plan(self, spec: SandboxSpec) -> tuple[SandboxHandle, Any]:
        """Return the handle of the sandbox to create, and the settings to create it with."""

    @abstractmethod
    async def _launch(self, handle: SandboxHandle, spec: SandboxSpec, options: Any, what: str) -> None:
        """Start what `_plan` planned; `what` names it in errors."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> Any:
        """Return the `raw` of a handle from what `_describe` returned."""

    @abstractmethod
    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the state of the sandbox."""

    @abstractmethod
    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox and everything in it; idempotent."""

    @abstractmethod
    def _build_entry(
        self, handle: SandboxHandle, command: SandboxCommand, *, interactive: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """Return the client's arguments to run `command` inside, and what to add to the client's own environment."""

    @abstractmethod
    async def _find_cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        """Return why a command ended if we did not end it; raise if the container is gone."""

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a sandbox and wait until it accepts commands."""
        if not spec.image:
            raise SandboxCreateError(
                f"a sandbox of provider {self.name!r} needs an image\nhint: set `image` of the sandbox spec"
            )
        handle, options = self._plan(spec)
        what = f"a sandbox of provider {self.name!r} from image {spec.image!r}"
        try:
            await self._launch(handle, spec, options, what)
            await self._verify(handle, what)
        except BaseException:
            # Also on cancellation: the engine may have started something that nobody will own.
            with contextlib.suppress(OSError, SandboxError):
                await self.close(handle)
            raise
        return handle

    async def _reconnect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        handle = SandboxHandle(sandbox_id, self.name, self._restore(state))
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(f"{self.name} sandbox {sandbox_id!r} is not running")
        return handle

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
                stdin=command.stdin or DEVNULL,
                stdout=command.stdout,
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
        # As the same user: without the ptrace capability, not even root may read the environment of others.
        command = SandboxCommand([SHELL, "-c", KILL_MARKED, "sandbox", mark], CONTROL_TIMEOUT_S, cwd="/", user=user)
        arguments, client_env = self._build_entry(handle, command)
        killed = await self._run_client(arguments, client_env)
        if killed.return_code != 0:
            LOG.warning(
                "processes of a command may still be running in sandbox %r: killing them returned exit code %s %s",
                handle.sandbox_id,
                killed.return_code,
                quote_end(killed.stderr),
            )

    async def _run_client(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = CONTROL_TIMEOUT_S
    ) -> Completed:
        """Run the client program for our own purposes, not for a command."""
        return await run_program([self._executable, *arguments], env={**os.environ, **(env or {})}, timeout_s=timeout_s)

    async def _start(self, arguments: Sequence[str], env: Mapping[str, str], what: str, timeout_s: float) -> None:
        """Run the client to start something; raise SandboxCreateError if it fails or takes too long."""
        completed = await self._run_client(arguments, env, timeout_s)
        if completed.ended_by == "timeout":
            raise SandboxCreateError(
                f"cannot create {what}: not ready after {timeout_s:g} s\n{quote_end(completed.stderr)}\n"
                "hint: raise `ready_timeout_s` of the sandbox spec if the image is large, or pull it beforehand"
            )
        if completed.return_code != 0:
            failed = f"{self._executable} returned exit code {completed.return_code}"
            raise SandboxCreateError(
                f"cannot create {what}: {failed}\n{quote_end(completed.stderr)}\n"
                "hint: check that the engine works here and that the image name is right"
            )

    async def _verify(self, handle: SandboxHandle, what: str) -> None:
        """Run the probe until it has succeeded `stable_count` times in a row."""
        probe = self._probe_config
        loop = asyncio.get_running_loop()
        give_up = loop.time() + (probe.deadline_s or 0)
        successes = 0
        while successes < probe.stable_count:
            result = await self.exec(handle, probe.command, timeout_s=probe.timeout_s)
            if result.return_code == 0 and probe.expected_stdout in (result.stdout or ""):
                successes += 1
                if successes < probe.stable_count:
                    await asyncio.sleep(probe.stable_delay_s)
                continue
            successes = 0
            if loop.time() >= give_up:
                raise SandboxCreateVerificationError(
                    f"cannot create {what}: it did not answer its probe {probe.command!r}\n"
                    f"return code {result.return_code}, output {result.stdout!r}, {result.stderr}\n"
                    "hint: set `probe` of the provider if the image needs a different command or more time"
                )
            await asyncio.sleep(PROBE_INTERVAL_S)


def find_program(program: str, install_hint: str) -> str:
    """Return the path of an engine's client program."""
    found = shutil.which(program)
    if found is None:
        raise SandboxCreateError(f"the program {program!r} is missing, or cannot be run\nhint: {install_hint}")
    return found


def read_settings(kind: type[Settings], given: Settings | Mapping[str, Any] | None, provider: str) -> Settings:
    """Return the settings (a dataclass) from an object, a mapping, or None for the defaults."""
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
    """Return the end of a program's output, to quote in a message."""
    return output[-last_bytes:].decode("utf-8", errors="replace").strip()
