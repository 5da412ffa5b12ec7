# SPDX-License-Identifier: Apache-2.0
"""What a sandbox is: its description, its results, its errors, and what a provider has to offer.

These are plain values and one protocol; nothing here starts a process. How a sandbox is really made is left to the
providers beside this module.

    GymError
    └── SandboxError                       anything that went wrong with a sandbox itself, not with the command in it
        ├── SandboxConfigError (ValueError)        a provider config or a spec cannot be used as it is
        ├── SandboxCreateError                     a sandbox could not be made
        │   └── UnknownProviderError (ValueError)  no provider of that name is registered
        ├── SandboxNotRunningError                 the sandbox was never started, has ended, or is out of reach
        └── SandboxTransferError                   a file could not be brought in or out
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from nemo_gym.errors import GymError

DEFAULT_EXEC_TIMEOUT_S = 180.0
TIMEOUT_RETURN_CODE = 124
KILLED_RETURN_CODE = 137


class SandboxError(GymError):
    """Something went wrong with a sandbox itself, not with the command that ran in it."""


class SandboxConfigError(SandboxError, ValueError):
    """A provider config or a sandbox spec cannot be used as it is."""


class SandboxCreateError(SandboxError):
    """A sandbox could not be made."""


class UnknownProviderError(SandboxCreateError, ValueError):
    """No sandbox provider of that name is registered."""


class SandboxNotRunningError(SandboxError):
    """The sandbox was never started, has ended, or is out of reach."""


class SandboxTransferError(SandboxError):
    """A file could not be brought into or out of a sandbox."""


class SandboxStatus(StrEnum):
    """Where a sandbox is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """What a sandbox may use; None leaves it to the provider."""

    cpu: float | None = None
    memory_mib: int | None = None
    disk_gib: float | None = None
    gpu: int | None = None
    gpu_type: str | None = None


@dataclass(frozen=True)
class SandboxSpec:
    """The sandbox one wants."""

    image: str | None = None
    """Container image; providers without images leave it aside."""
    ttl_s: float | None = None
    """The sandbox ends by itself after this time, whatever becomes of its owner."""
    ready_timeout_s: float | None = None
    """How long making it may take, image download included; None is the provider's default."""
    workdir: str | None = None
    """Where commands run unless they say otherwise; made if it is not there."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every command."""
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict)
    """Path in the sandbox -> its content (text or bytes), or the local file to copy (a `Path`)."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Labels, so that the sandbox can be found again in the provider's own tools."""
    resources: SandboxResources = field(default_factory=SandboxResources)
    entrypoint: str | Sequence[str] | None = None
    """Main process, in place of one that only keeps the sandbox alive; a string goes through a shell."""
    provider_options: Mapping[str, Any] = field(default_factory=dict)
    """Settings that only this provider knows; they override its `create` settings for this sandbox."""
    ports: Sequence[int] = ()
    """Ports inside the sandbox that `endpoint` must be able to reach."""

    def __post_init__(self) -> None:
        given: object = self.resources
        if given is None:
            object.__setattr__(self, "resources", SandboxResources())
        elif isinstance(given, Mapping):
            object.__setattr__(self, "resources", SandboxResources(**given))
        check_env(self.env)


@dataclass(frozen=True)
class SandboxExecResult:
    """How a command ended. `error_type` says what cut it short: "timeout", "oom", "output_limit", ..., or None."""

    stdout: str = ""
    stderr: str = ""
    return_code: int = 0
    error_type: str | None = None


@dataclass(frozen=True)
class SandboxEndpoint:
    """Where a port of the sandbox can be reached from here."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Host part of `url`."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int | None:
        """Port part of `url`, if it names one."""
        return urlsplit(self.url).port


@dataclass(frozen=True)
class SandboxHandle:
    """A sandbox as its provider knows it; `raw` is the provider's own affair."""

    sandbox_id: str
    provider_name: str = ""
    raw: Any = None


class SandboxProvider(Protocol):
    """Makes sandboxes and runs commands in them.

    A command that fails, times out or is killed is a result. An exception means that the sandbox itself failed, so
    that nobody mistakes a broken engine for a wrong answer of the model.
    """

    name: str

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make a sandbox that is ready for commands, `spec.files` in place; leave nothing behind if that fails."""
        ...

    async def exec(
        self,
        handle: SandboxHandle,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command (a string goes through a shell); after `timeout_s` it is killed inside the sandbox."""
        ...

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file or folder to `target_path`, making the folders above it."""
        ...

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file or folder of the sandbox to the local `target_path`, complete or not at all."""
        ...

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Where the sandbox is in its life."""
        ...

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox and all it holds; ending it twice is not an error."""
        ...

    async def aclose(self) -> None:
        """Release what the provider itself holds (connections and the like), not its sandboxes."""
        ...


@runtime_checkable
class SupportsEndpoints(Protocol):
    """A provider whose sandboxes can be reached over the network."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Where `port` of the sandbox can be reached from here."""
        ...


@runtime_checkable
class SupportsConnect(Protocol):
    """A provider whose sandboxes another process can take up."""

    def dump(self, handle: SandboxHandle) -> dict[str, Any]:
        """What `connect` needs, as JSON values and without secrets."""
        ...

    async def connect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        """The handle of a running sandbox that `dump` described."""
        ...


def check_env(env: Mapping[str, str]) -> None:
    """Refuse names and values that no process environment can hold."""
    bad = [name for name in env if not isinstance(name, str) or not name or "=" in name or "\0" in name]
    if bad:
        raise SandboxConfigError(f"not names of environment variables: {', '.join(map(repr, bad))}")
    unusable = [name for name, value in env.items() if not isinstance(value, str) or "\0" in value]
    if unusable:
        raise SandboxConfigError(
            f"environment variables whose value is not text: {', '.join(map(repr, unusable))}\n"
            f"hint: give strings without NUL characters, e.g. {unusable[0]}: '1'"
        )
