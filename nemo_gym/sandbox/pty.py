# SPDX-License-Identifier: Apache-2.0
"""Terminals for interactive programs in a sandbox; `AsyncSandbox.pty` provides them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nemo_gym.sandbox.providers.base import (
    DEFAULT_EXEC_TIMEOUT_S,
    KILLED_RETURN_CODE,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxPtySession,
    SandboxPtySpec,
    SandboxSpec,
    SandboxUnsupportedError,
    SupportsSandboxPty,
    SupportsSandboxPtyAttach,
    make_timeout_result,
)
from nemo_gym.sandbox.providers.processes import DEFAULT_MAX_OUTPUT_BYTES, Capture


class SandboxPty:
    """The terminals of one running sandbox."""

    def __init__(self, provider: SandboxProvider, handle: SandboxHandle, spec: SandboxSpec | None) -> None:
        self._provider = provider
        self._handle = handle
        self._workdir = spec.workdir if spec is not None else None

    async def create(self, spec: SandboxPtySpec | None = None) -> SandboxPtySession:
        """Start a program in a terminal, by default a shell in the sandbox's `workdir`."""
        if not isinstance(self._provider, SupportsSandboxPty):
            raise SandboxUnsupportedError(f"sandbox provider {self._provider.name!r} offers no terminals")
        if spec is None:
            spec = SandboxPtySpec()
        if spec.cwd is None:
            spec = replace(spec, cwd=self._workdir)
        return await self._provider.create_pty(self._handle, spec)

    async def attach(self, pty_id: str) -> SandboxPtySession:
        """Return the terminal that `create` opened under this id."""
        if not isinstance(self._provider, SupportsSandboxPtyAttach):
            raise SandboxUnsupportedError(f"sandbox provider {self._provider.name!r} cannot find open terminals")
        return await self._provider.attach_pty(self._handle, pty_id)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, Any] | None = None,
        timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S,
        user: str | int | None = None,
        rows: int = 24,
        cols: int = 80,
    ) -> SandboxExecResult:
        """Run a command in a terminal until it ends; `stdout` is what the terminal showed."""
        session = await self.create(SandboxPtySpec(command, cwd, env, rows, cols, user))
        flooded = asyncio.Event()
        shown = Capture(DEFAULT_MAX_OUTPUT_BYTES, flooded)
        try:
            async with asyncio.timeout(timeout_s):
                while not flooded.is_set() and (data := await session.read()):
                    shown.add(data)
                code = KILLED_RETURN_CODE
                if not flooded.is_set():
                    code = await session.wait()
        except TimeoutError:
            return make_timeout_result(shown.get_content())
        finally:
            await session.close()
        cause = "output_limit" if flooded.is_set() else None
        return SandboxExecResult(shown.get_content().decode("utf-8", errors="replace"), "", code, cause)
