# SPDX-License-Identifier: Apache-2.0
"""The sandbox API that servers use, the same for every provider.

`AsyncSandbox` is for code in an event loop, `Sandbox` for all other code. A command always returns a result, even if
the sandbox could not run it; any other problem with the sandbox raises a `SandboxError`.
"""

import asyncio
import functools
import inspect
import tempfile
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from nemo_gym._util.off_the_loop import LoopThread
from nemo_gym.sandbox.providers.base import (
    DEFAULT_EXEC_TIMEOUT_S,
    ConnectableProvider,
    SandboxConfigError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    SandboxUnsupportedError,
    SupportsSandboxEndpoint,
)
from nemo_gym.sandbox.providers.registry import create_provider
from nemo_gym.sandbox.pty import SandboxPty

P = ParamSpec("P")
Result = TypeVar("Result")


class AsyncSandbox:
    """A sandbox: `start` creates it; `stop`, or leaving `async with`, ends it."""

    def __init__(self, provider: Mapping[str, Any] | SandboxProvider, spec: SandboxSpec | None = None) -> None:
        """`provider` is `{name: settings}` or a provider object; `stop` closes it in either case."""
        if isinstance(provider, Mapping):
            provider = create_provider(provider)
        self.provider: SandboxProvider = provider
        self.spec = spec
        self._handle: SandboxHandle | None = None
        self._stopped = False

    @property
    def handle(self) -> SandboxHandle:
        """The provider's handle for this sandbox."""
        if self._handle is None:
            raise SandboxNotRunningError("the sandbox is not running\nhint: `await sandbox.start()` before using it")
        return self._handle

    @property
    def sandbox_id(self) -> str:
        """The provider's id for this sandbox."""
        return self.handle.sandbox_id

    @property
    def pty(self) -> SandboxPty:
        """Terminals in this sandbox."""
        return SandboxPty(self.provider, self.handle, self.spec)

    async def start(self, spec: SandboxSpec | None = None) -> Self:
        """Create the sandbox from `spec`, or from the constructor's, and upload its files."""
        if self._handle is not None:
            raise SandboxError(f"sandbox {self._handle.sandbox_id!r} is already running")
        if self._stopped:
            raise SandboxError("the sandbox was stopped and cannot be started again\nhint: create a new one")
        if spec is None:
            spec = self.spec
        if spec is None:
            raise SandboxConfigError(
                "there is no spec to start a sandbox from\nhint: `await sandbox.start(SandboxSpec(image=...))`"
            )
        handle = await self.provider.create(spec)
        try:
            await self._upload_files(handle, spec)
        except BaseException:
            # Also on cancellation: nobody would own this sandbox.
            await self.provider.close(handle)
            raise
        self.spec = spec
        self._handle = handle
        return self

    async def _upload_files(self, handle: SandboxHandle, spec: SandboxSpec) -> None:
        if not spec.files:
            return
        with tempfile.TemporaryDirectory(prefix="nemo-gym-files-") as folder:
            for number, (target, content) in enumerate(spec.files.items()):
                if not isinstance(content, Path):
                    source = Path(folder, str(number))
                    await asyncio.to_thread(_write_file, source, content)
                    content = source
                await self.provider.upload_file(handle, content, target)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, Any] | None = None,
        timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command, in the spec's `workdir` unless `cwd` is given.

        After `timeout_s` it is killed and its `error_type` is "timeout"; "sandbox" means it could not run at all.
        """
        if cwd is None and self.spec is not None:
            cwd = self.spec.workdir
        return await self.provider.exec(self.handle, command, cwd=cwd, env=env, timeout_s=timeout_s, user=user)

    async def upload(self, source_path: str | Path, target_path: str) -> None:
        """Copy a local file or folder into the sandbox."""
        await self.provider.upload_file(self.handle, Path(source_path), target_path)

    async def download(self, source_path: str, target_path: str | Path) -> None:
        """Copy a file or folder out of the sandbox."""
        await self.provider.download_file(self.handle, source_path, Path(target_path))

    async def status(self) -> SandboxStatus:
        """Return the state of the sandbox: unknown before it starts, stopped after it ends."""
        if self._handle is not None:
            return await self.provider.status(self._handle)
        return SandboxStatus.STOPPED if self._stopped else SandboxStatus.UNKNOWN

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """Return the address of a port that the spec declares."""
        handle = self.handle
        if self.spec is not None and port not in self.spec.ports:
            raise SandboxConfigError(
                f"port {port!r} of sandbox {handle.sandbox_id!r} is not declared; declared: {list(self.spec.ports)}\n"
                f"hint: declare it in the sandbox spec: `ports: [{port}]`"
            )
        if not isinstance(self.provider, SupportsSandboxEndpoint):
            raise SandboxUnsupportedError(f"sandbox provider {self.provider.name!r} offers no endpoints")
        return await self.provider.endpoint(handle, port)

    async def stop(self) -> None:
        """End the sandbox and close its provider; idempotent."""
        if self._stopped:
            return
        try:
            if self._handle is not None:
                await self.provider.close(self._handle)
            self._handle = None
            self._stopped = True
        finally:
            await self.provider.aclose()

    async def serialize(self, *, scope: str | None = None) -> Mapping[str, Any]:
        """Describe the running sandbox for `connect` in another process, without secrets."""
        handle = self.handle
        if not isinstance(self.provider, ConnectableProvider):
            raise SandboxError(f"sandboxes of provider {self.provider.name!r} cannot be passed to another process")
        descriptor: Mapping[str, Any] = await _await_if_needed(self.provider.serialize_handle(handle, scope=scope))
        return descriptor

    @classmethod
    async def connect(cls, descriptor: Mapping[str, Any], *, provider: Mapping[str, Any] | SandboxProvider) -> Self:
        """Connect to the running sandbox that `serialize` described; stopping it ends it for everyone."""
        sandbox = cls(provider)
        if not isinstance(sandbox.provider, ConnectableProvider):
            raise SandboxError(f"provider {sandbox.provider.name!r} cannot connect to a running sandbox")
        try:
            sandbox._handle = await _await_if_needed(sandbox.provider.connect(descriptor))
        except BaseException:
            # No sandbox is returned to close the provider. One that the caller passed in may serve others.
            if isinstance(provider, Mapping):
                await sandbox.provider.aclose()
            raise
        return sandbox

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


async def _await_if_needed(value: Any) -> Any:
    """Return `value`, awaited if needed: third-party providers may define these methods without `async`."""
    return await value if inspect.isawaitable(value) else value


def _write_file(path: Path, content: str | bytes) -> None:
    if not isinstance(content, bytes):
        content = str(content).encode()
    path.write_bytes(content)
    path.chmod(0o644)


def _block_on(
    method: Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["Sandbox", P], Result]:
    """Return a blocking version of `method` for `Sandbox`."""

    @functools.wraps(method)
    def wait(self: "Sandbox", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._wait(method(self._sandbox, *args, **kwargs))

    return wait


class Sandbox:
    """A sandbox for synchronous code: it runs an event loop in its own thread."""

    def __init__(self, provider: Mapping[str, Any] | SandboxProvider, spec: SandboxSpec | None = None) -> None:
        """See `AsyncSandbox`."""
        self._sandbox = AsyncSandbox(provider, spec)
        self._loop: LoopThread | None = None

    @property
    def provider(self) -> SandboxProvider:
        """The provider behind this sandbox."""
        return self._sandbox.provider

    @property
    def spec(self) -> SandboxSpec | None:
        """The spec of this sandbox."""
        return self._sandbox.spec

    @property
    def handle(self) -> SandboxHandle:
        """The provider's handle for this sandbox."""
        return self._sandbox.handle

    @property
    def sandbox_id(self) -> str:
        """The provider's id for this sandbox."""
        return self._sandbox.sandbox_id

    def start(self, spec: SandboxSpec | None = None) -> Self:
        """See `AsyncSandbox.start`."""
        self._wait(self._sandbox.start(spec))
        return self

    exec = _block_on(AsyncSandbox.exec)
    upload = _block_on(AsyncSandbox.upload)
    download = _block_on(AsyncSandbox.download)
    status = _block_on(AsyncSandbox.status)
    endpoint = _block_on(AsyncSandbox.endpoint)
    serialize = _block_on(AsyncSandbox.serialize)

    def stop(self) -> None:
        """See `AsyncSandbox.stop`."""
        try:
            self._wait(self._sandbox.stop())
        finally:
            loop = self._loop
            self._loop = None
            if loop is not None:
                loop.close()

    @classmethod
    def connect(cls, descriptor: Mapping[str, Any], *, provider: Mapping[str, Any] | SandboxProvider) -> Self:
        """See `AsyncSandbox.connect`."""
        sandbox = cls(provider)
        sandbox._sandbox = sandbox._wait(AsyncSandbox.connect(descriptor, provider=sandbox.provider))
        return sandbox

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise SandboxError(
                "a `Sandbox` blocks, so it cannot be used inside a running event loop\nhint: use `AsyncSandbox`"
            )
        if self._loop is None:
            self._loop = LoopThread("nemo-gym-sandbox")
            # A sandbox that is never stopped must not keep its thread forever.
            weakref.finalize(self, self._loop.close)
        return self._loop.wait(work)
