# SPDX-License-Identifier: Apache-2.0
"""The sandbox that servers use: one object with a life, whatever provider stands behind it.

`AsyncSandbox` is for code in an event loop, `Sandbox` offers the same to code that is not. What a command did is a
result; what went wrong with the sandbox itself is a `SandboxError`.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nemo_gym.sandbox.providers.base import (
    DEFAULT_EXEC_TIMEOUT_S,
    SandboxConfigError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    SupportsConnect,
    SupportsEndpoints,
)
from nemo_gym.sandbox.providers.registry import create_provider

Result = TypeVar("Result")


class AsyncSandbox:
    """A sandbox of one provider; `async with` starts and stops it."""

    def __init__(self, provider: Mapping[str, Any] | SandboxProvider, spec: SandboxSpec | None = None) -> None:
        """`provider` is `{name: settings}`, or a provider, which then stays the caller's to close."""
        self._owns_provider = isinstance(provider, Mapping)
        self.provider: SandboxProvider = create_provider(provider) if isinstance(provider, Mapping) else provider
        self.spec = spec
        self._handle: SandboxHandle | None = None

    @property
    def handle(self) -> SandboxHandle:
        """The sandbox as its provider knows it."""
        if self._handle is None:
            raise SandboxNotRunningError("the sandbox is not running\nhint: `await sandbox.start()`, or `async with`")
        return self._handle

    @property
    def sandbox_id(self) -> str:
        """The provider's name for this sandbox."""
        return self.handle.sandbox_id

    async def start(self, spec: SandboxSpec | None = None) -> Self:
        """Make the sandbox, from `spec` or the one given before; it is ready for commands afterwards."""
        if self._handle is not None:
            raise SandboxError(f"sandbox {self._handle.sandbox_id!r} is running already")
        wanted = spec if spec is not None else self.spec
        self.spec = wanted if wanted is not None else SandboxSpec()
        self._handle = await self.provider.create(self.spec)
        return self

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command; after `timeout_s` it is killed and the result says "timeout"."""
        return await self.provider.exec(self.handle, command, cwd=cwd, env=env, timeout_s=timeout_s, user=user)

    async def upload(self, source_path: str | Path, target_path: str) -> None:
        """Copy a local file or folder into the sandbox."""
        await self.provider.upload_file(self.handle, source_path, target_path)

    async def download(self, source_path: str, target_path: str | Path) -> None:
        """Copy a file or folder out of the sandbox."""
        await self.provider.download_file(self.handle, source_path, target_path)

    async def status(self) -> SandboxStatus:
        """Where the sandbox is in its life; stopped before it starts and after it ends."""
        return SandboxStatus.STOPPED if self._handle is None else await self.provider.status(self._handle)

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """Where a port of the sandbox can be reached from here."""
        if not isinstance(self.provider, SupportsEndpoints):
            raise SandboxError(f"sandbox provider {self.provider.name!r} offers no endpoints")
        return await self.provider.endpoint(self.handle, port)

    async def stop(self) -> None:
        """End the sandbox; more than once does no harm."""
        handle, self._handle = self._handle, None
        try:
            if handle is not None:
                await self.provider.close(handle)
        finally:
            if self._owns_provider:
                await self.provider.aclose()

    def serialize(self) -> dict[str, Any]:
        """What `connect` needs in another process, as JSON values and without secrets."""
        if not isinstance(self.provider, SupportsConnect):
            raise SandboxError(f"sandboxes of provider {self.provider.name!r} cannot be handed on")
        state = self.provider.dump(self.handle)
        return {"schema": 1, "provider": self.provider.name, "sandbox_id": self.handle.sandbox_id, "state": state}

    @classmethod
    async def connect(cls, provider: Mapping[str, Any] | SandboxProvider, serialized: Mapping[str, Any]) -> Self:
        """Take up the running sandbox that `serialize` described; stopping it ends it for everybody."""
        sandbox = cls(provider)
        if not isinstance(sandbox.provider, SupportsConnect):
            raise SandboxError(f"sandboxes of provider {sandbox.provider.name!r} cannot be taken up")
        if serialized.get("provider") != sandbox.provider.name:
            raise SandboxConfigError(
                f"the sandbox belongs to provider {serialized.get('provider')!r}, not {sandbox.provider.name!r}"
            )
        sandbox._handle = await sandbox.provider.connect(serialized["sandbox_id"], serialized["state"])
        return sandbox

    async def __aenter__(self) -> Self:
        return self if self._handle is not None else await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


class Sandbox:
    """The same for code without an event loop, or beside one: its work happens on a loop in a thread of its own."""

    def __init__(self, provider: Mapping[str, Any] | SandboxProvider, spec: SandboxSpec | None = None) -> None:
        """See `AsyncSandbox`."""
        self._sandbox = AsyncSandbox(provider, spec)
        self._loop: _LoopThread | None = None

    @property
    def provider(self) -> SandboxProvider:
        """The provider behind this sandbox."""
        return self._sandbox.provider

    @property
    def spec(self) -> SandboxSpec | None:
        """What was asked for."""
        return self._sandbox.spec

    @property
    def handle(self) -> SandboxHandle:
        """The sandbox as its provider knows it."""
        return self._sandbox.handle

    @property
    def sandbox_id(self) -> str:
        """The provider's name for this sandbox."""
        return self._sandbox.sandbox_id

    def start(self, spec: SandboxSpec | None = None) -> Self:
        """See `AsyncSandbox.start`."""
        self._wait(self._sandbox.start(spec))
        return self

    def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """See `AsyncSandbox.exec`."""
        return self._wait(self._sandbox.exec(command, cwd=cwd, env=env, timeout_s=timeout_s, user=user))

    def upload(self, source_path: str | Path, target_path: str) -> None:
        """See `AsyncSandbox.upload`."""
        self._wait(self._sandbox.upload(source_path, target_path))

    def download(self, source_path: str, target_path: str | Path) -> None:
        """See `AsyncSandbox.download`."""
        self._wait(self._sandbox.download(source_path, target_path))

    def status(self) -> SandboxStatus:
        """See `AsyncSandbox.status`."""
        return self._wait(self._sandbox.status())

    def endpoint(self, port: int) -> SandboxEndpoint:
        """See `AsyncSandbox.endpoint`."""
        return self._wait(self._sandbox.endpoint(port))

    def stop(self) -> None:
        """See `AsyncSandbox.stop`."""
        try:
            self._wait(self._sandbox.stop())
        finally:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.close()

    def serialize(self) -> dict[str, Any]:
        """See `AsyncSandbox.serialize`."""
        return self._sandbox.serialize()

    @classmethod
    def connect(cls, provider: Mapping[str, Any] | SandboxProvider, serialized: Mapping[str, Any]) -> Self:
        """See `AsyncSandbox.connect`."""
        sandbox = cls(provider)
        sandbox._sandbox = sandbox._wait(AsyncSandbox.connect(sandbox.provider, serialized))
        sandbox._sandbox._owns_provider = isinstance(provider, Mapping)
        return sandbox

    def __enter__(self) -> Self:
        return self if self._sandbox._handle is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            self._loop = _LoopThread()
            # A sandbox that nobody stops does not keep its thread for ever.
            weakref.finalize(self, self._loop.close)
        return self._loop.wait(work)


class _LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="nemo-gym-sandbox", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._closing.wait())

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on the loop and wait for it; what interrupts the wait also cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """End loop and thread; more than once does no harm."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop closed between the two lines
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
