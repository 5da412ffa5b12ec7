# SPDX-License-Identifier: Apache-2.0
"""The sandbox interface: specs, results, errors, and what a provider implements.

These are plain values and protocols; the provider modules start the processes.

    GymError
    └── SandboxError (RuntimeError)                the sandbox itself failed, not a command in it
        ├── SandboxConfigError (ValueError)            a provider config or a spec is invalid
        │   └── SandboxConfigTypeError (TypeError)     a part of it has the wrong type
        ├── SandboxCreateError                         a sandbox could not be created
        │   ├── SandboxCreateVerificationError         it was created but failed its probe
        │   └── UnknownProviderError (ValueError)      there is no provider of that name
        ├── SandboxNotRunningError                     the sandbox was never started, has ended, or is unreachable
        │   └── SandboxExpiredError                    its time to live is over
        ├── SandboxTransferError                       a file could not be copied in or out
        ├── SandboxPtyError                            a terminal could not be opened, or has ended
        └── SandboxUnsupportedError (NotImplementedError)  the provider does not support this
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from nemo_gym.errors import GymError

__all__ = [
    "ConnectableProvider",
    "ExecResult",
    "SandboxConfigError",
    "SandboxConfigTypeError",
    "SandboxCreateError",
    "SandboxCreateVerificationError",
    "SandboxEndpoint",
    "SandboxError",
    "SandboxExecResult",
    "SandboxExpiredError",
    "SandboxHandle",
    "SandboxNotRunningError",
    "SandboxProvider",
    "SandboxPtyError",
    "SandboxPtySession",
    "SandboxPtySpec",
    "SandboxResources",
    "SandboxSpec",
    "SandboxStatus",
    "SandboxTransferError",
    "SandboxUnsupportedError",
    "SupportsSandboxEndpoint",
    "SupportsSandboxPty",
    "SupportsSandboxPtyAttach",
    "UnknownProviderError",
]

DEFAULT_EXEC_TIMEOUT_S = 180.0
FAILED_RETURN_CODE = 125
"""Return code of a command that timed out, or that the sandbox could not run."""
KILLED_RETURN_CODE = 137
MAX_PORT = 65535


class SandboxError(GymError, RuntimeError):
    """The sandbox itself failed, not the command that ran in it."""


class SandboxConfigError(SandboxError, ValueError):
    """A provider config or a sandbox spec is invalid."""


class SandboxConfigTypeError(SandboxConfigError, TypeError):
    """A part of a provider config has the wrong type."""


class SandboxCreateError(SandboxError):
    """A sandbox could not be created."""


class SandboxCreateVerificationError(SandboxCreateError):
    """A sandbox was created but failed its probe, so it was removed."""


class UnknownProviderError(SandboxCreateError, ValueError):
    """There is no sandbox provider of that name."""


class SandboxNotRunningError(SandboxError):
    """The sandbox was never started, has ended, or is unreachable."""


class SandboxExpiredError(SandboxNotRunningError):
    """The time to live of the sandbox is over."""


class SandboxTransferError(SandboxError):
    """A file could not be copied into or out of a sandbox."""


class SandboxPtyError(SandboxError):
    """A terminal in a sandbox could not be opened, or has ended."""


class SandboxUnsupportedError(SandboxError, NotImplementedError):
    """The provider does not support what was asked for."""


class SandboxStatus(StrEnum):
    """The state of a sandbox."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """What a sandbox may use; None leaves it to the provider."""

    cpu: float | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    gpu: int | None = None
    gpu_type: str | None = None

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any] | None) -> Self:
        """Build resources from config values, which may be numbers or numeric strings."""
        kinds = {"cpu": float, "memory_mib": int, "disk_gib": int, "gpu": int, "gpu_type": str}
        given = {name: value for name, value in (values or {}).items() if value is not None}
        unknown = sorted(set(given) - set(kinds), key=str)
        if unknown:
            raise SandboxConfigError(
                f"Unknown sandbox resource keys: {', '.join(map(repr, unknown))}\nhint: use {', '.join(kinds)}"
            )
        try:
            return cls(**{name: kinds[name](value) for name, value in given.items()})
        except (TypeError, ValueError) as error:
            raise SandboxConfigError(
                f"sandbox resources are not numbers: {dict(given)!r} ({error})\nhint: e.g. {{'memory_mib': 2048}}"
            ) from error


@dataclass(frozen=True)
class SandboxSpec:
    """The sandbox to create."""

    image: str | None = None
    """Container image; providers without images ignore it."""
    ttl_s: float | None = None
    """The sandbox ends after this time, even if its owner is gone."""
    ready_timeout_s: float | None = None
    """How long creating it may take, including the image download; None for the provider's default."""
    workdir: str | None = None
    """Where commands run by default; created if it does not exist."""
    env: Mapping[str, Any] = field(default_factory=dict)
    """Environment of every command; values are converted to strings."""
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict)
    """Path in the sandbox -> its content (text or bytes), or the local file to copy (a `Path`)."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Labels for finding the sandbox with the provider's own tools."""
    resources: SandboxResources = field(default_factory=SandboxResources)
    """May also be given as a mapping: see `SandboxResources.from_mapping`."""
    entrypoint: str | Sequence[str] | None = None
    """Main process, instead of one that only keeps the sandbox alive; a string is run by a shell."""
    provider_options: Mapping[str, Any] = field(default_factory=dict)
    """Provider-specific settings, which override its `create` settings for this sandbox."""
    ports: Sequence[int] = ()
    """Ports inside the sandbox that `endpoint` may be asked for."""

    def __post_init__(self) -> None:
        given: object = self.resources
        if given is None or isinstance(given, Mapping):
            object.__setattr__(self, "resources", SandboxResources.from_mapping(given))
        object.__setattr__(self, "ports", _check_ports(self.ports))


def _check_ports(ports: object) -> tuple[int, ...]:
    if not isinstance(ports, Sequence) or isinstance(ports, str | bytes):
        raise SandboxConfigError(f"the ports of a sandbox must be a list of numbers, not {ports!r}")
    numbers: list[int] = []
    for port in ports:
        number = port
        if isinstance(port, str) and port.isdecimal() and port.isascii():
            number = int(port)
        if type(number) is not int:
            raise SandboxConfigError(f"Invalid sandbox TCP port {port!r}: it must be a whole number")
        if not 1 <= number <= MAX_PORT:
            raise SandboxConfigError(f"Invalid sandbox TCP port {port!r}: it must be between 1 and {MAX_PORT}")
        if number in numbers:
            raise SandboxConfigError(f"Duplicate sandbox TCP port {number} in {list(ports)}")
        numbers.append(number)
    return tuple(numbers)


@dataclass(frozen=True)
class SandboxExecResult:
    """How a command ended.

    `error_type` says what cut it short, if anything: "timeout" (of the command, or of the sandbox's time to live),
    "sandbox" (the sandbox failed, not the command), "oom", "output_limit" and so on. `stdout` and `stderr` are None if
    there is nothing to show.
    """

    stdout: str | None
    stderr: str | None
    return_code: int
    error_type: str | None = None


ExecResult = SandboxExecResult


@dataclass(frozen=True)
class SandboxEndpoint:
    """The address at which a sandbox port can be reached from here."""

    endpoint: str
    """An absolute URL."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that every request needs."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint) if isinstance(self.endpoint, str) else None
        if parts is None or not parts.scheme or not parts.netloc:
            raise SandboxConfigError(
                f"the endpoint of a sandbox must be an absolute URL, not {self.endpoint!r}\n"
                "hint: e.g. 'http://127.0.0.1:8000'"
            )


@dataclass
class SandboxHandle:
    """A provider's handle for a sandbox; only the provider reads `raw`."""

    sandbox_id: str
    provider_name: str = ""
    raw: Any = None


@dataclass(frozen=True)
class SandboxPtySpec:
    """The terminal to open in a sandbox."""

    command: str | Sequence[str] | None = None
    """What runs in it; None for a shell."""
    cwd: str | None = None
    env: Mapping[str, Any] | None = None
    rows: int = 24
    cols: int = 80
    user: str | int | None = None
    pty: bool = True
    """False for plain streams instead of a terminal."""


class SandboxPtySession(Protocol):
    """An interactive program in a sandbox."""

    pty_id: str

    async def read(self, timeout_s: float | None = None) -> bytes:
        """Return output as soon as there is some, or b"" at the end; raise `TimeoutError` if none arrives in time."""

    async def write(self, data: str | bytes) -> None:
        """Type `data`."""

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal."""

    async def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the program to end and return its return code."""

    async def close(self) -> None:
        """End the program and everything it started; idempotent."""


class SandboxProvider(Protocol):
    """Creates sandboxes and runs commands in them.

    A command that fails, times out or is killed returns a result. So does one that the sandbox could not run: its
    `error_type` is "sandbox", so that a broken engine is not mistaken for a wrong answer by the model.
    """

    name: str

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Create a sandbox that is ready for commands; leave nothing behind on failure."""

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
        """Run a command (a string is run by a shell); after `timeout_s` it is killed inside the sandbox."""

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a local file or folder to `target_path`, creating parent folders."""

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file or folder of the sandbox to the local `target_path`, complete or not at all."""

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the state of the sandbox."""

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox and everything in it; idempotent."""

    async def aclose(self) -> None:
        """Release the provider's own resources, such as connections, but not its sandboxes.

        Every sandbox calls this when it stops, even while others of the same provider are running.
        """


@runtime_checkable
class SupportsSandboxEndpoint(Protocol):
    """A provider whose sandboxes can be reached over the network."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the address at which `port` of the sandbox can be reached from here."""


@runtime_checkable
class SupportsSandboxPty(Protocol):
    """A provider that opens terminals in its sandboxes."""

    async def create_pty(self, handle: SandboxHandle, spec: SandboxPtySpec) -> SandboxPtySession:
        """Start a program in a terminal."""


@runtime_checkable
class SupportsSandboxPtyAttach(Protocol):
    """A provider that can find an open terminal again."""

    async def attach_pty(self, handle: SandboxHandle, pty_id: str) -> SandboxPtySession:
        """Return the terminal that `create_pty` opened."""


@runtime_checkable
class ConnectableProvider(Protocol):
    """A provider whose sandboxes another process can connect to."""

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> Mapping[str, Any]:
        """Describe the sandbox for `connect`, as JSON values and without secrets.

        `scope` narrows what the holder of the description may do, where the provider can enforce that.
        """

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """Return the handle of the running sandbox that `serialize_handle` described."""


def stringify_env(env: Mapping[str, Any] | None) -> dict[str, str]:
    """Return `env` with string values; raise if a process environment cannot hold it."""
    given = dict(env or {})
    bad = [name for name in given if not isinstance(name, str) or not name or "=" in name or "\0" in name]
    if bad:
        raise SandboxConfigError(f"invalid names of environment variables: {', '.join(map(repr, bad))}")
    unusable = [name for name, value in given.items() if value is None or "\0" in str(value)]
    if unusable:
        raise SandboxConfigError(
            f"environment variables without a usable value: {', '.join(map(repr, unusable))}\n"
            f"hint: give text without NUL characters, e.g. {unusable[0]}: '1'"
        )
    return {name: str(value) for name, value in given.items()}


def make_timeout_result(stdout: bytes, stderr: bytes = b"") -> SandboxExecResult:
    """Return the result of a command that was killed at its deadline, with all its output in `stderr`."""
    text = stderr.decode("utf-8", errors="replace")
    if text and not text.endswith("\n"):
        text += "\n"
    text += "[sandbox] the command was killed at its deadline"
    if stdout:
        text += f"; its stdout until then:\n{stdout.decode('utf-8', errors='replace')}"
        if not text.endswith("\n"):
            text += "\n"
    return SandboxExecResult(None, text, FAILED_RETURN_CODE, "timeout")
