# SPDX-License-Identifier: Apache-2.0
"""A sandbox provider as others write them: its sandboxes are dictionaries, and `echo` is all that they can run."""

from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from nemo_gym.sandbox import register_provider
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)


class PaperProvider:
    name = "paper"
    made: ClassVar[list["PaperProvider"]] = []

    def __init__(self, sheets: int = 1, region: str | None = None) -> None:
        self.sheets, self.region = sheets, region
        self.specs: list[SandboxSpec] = []
        self.closed: list[str] = []
        self.made.append(self)

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        if self.sheets < 1:
            raise SandboxCreateError("out of paper")
        self.specs.append(spec)
        return SandboxHandle(sandbox_id=uuid4().hex, provider_name=self.name, raw={"files": {}})

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=180, user=None) -> SandboxExecResult:
        script = handle.raw["files"][f"{cwd}/{command.removeprefix('sh ')}"]
        if script == "hang":
            return SandboxExecResult(stdout=None, stderr="too slow", return_code=125, error_type="timeout")
        if script == "burn":
            return SandboxExecResult(None, "on fire", 125, "sandbox")
        return SandboxExecResult(stdout=f"{script.removeprefix('echo ')}\n", stderr="", return_code=0)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        handle.raw["files"][target_path] = source_path.read_text()  # noqa: ASYNC240

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        target_path.write_text(handle.raw["files"][source_path])  # noqa: ASYNC240

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        return SandboxStatus.ERROR if handle.raw is None else SandboxStatus.RUNNING

    async def close(self, handle: SandboxHandle) -> None:
        handle.raw = None
        self.closed.append(handle.sandbox_id)

    async def aclose(self) -> None:
        self.closed.append("provider")


def register() -> None:
    """Make the provider known, in place of any other; called by whoever loads a config that names it."""
    register_provider("paper", PaperProvider, override=True)
    register_provider("paper", PaperProvider, override=True)
