# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Docker containers, through the `docker` program (or one that speaks like it, such as Podman).

The container removes itself when its main process ends, and that process ends with the time to live, so nothing is
left behind if its owner dies. `docker ps --filter label=nemo_gym.sandbox` finds what is there. Limits on disk space and
the choice of a GPU type are left to the engine's own configuration.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from nemo_gym.sandbox.providers.base import (
    KILLED_RETURN_CODE,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.commands import SHELL
from nemo_gym.sandbox.providers.engine import (
    CONTROL_TIMEOUT_S,
    DEFAULT_READY_TIMEOUT_S,
    EXEC_MARK,
    EngineProvider,
    override,
    tail,
)
from nemo_gym.sandbox.providers.processes import DEFAULT_MAX_OUTPUT_BYTES, Completed

LABEL = "nemo_gym.sandbox"
FOREVER_S = 2**31 - 1
# `$$` stays the process that `exec` puts in the shell's place, so the time to live ends the main process itself.
MAIN_PROCESS = '{ sleep "$1"; kill -9 $$; } >/dev/null 2>&1 & shift; exec "$@"'
# Given as they are: those that the client program reads itself, and the mark, which the client must not bear.
CLIENT_VARIABLES = ("PATH", "HOME", EXEC_MARK)
CLIENT_PREFIXES = ("DOCKER_", "LD_")
GONE = ("No such container", "is not running", "no such object", "No such object")
UNREACHABLE = ("Cannot connect to the Docker daemon", "error during connect", "failed to connect to the docker API")
STATUSES = {
    "created": SandboxStatus.STARTING,
    "restarting": SandboxStatus.STARTING,
    "running": SandboxStatus.RUNNING,
    "paused": SandboxStatus.RUNNING,
    "removing": SandboxStatus.STOPPED,
    "exited": SandboxStatus.STOPPED,
    "dead": SandboxStatus.FAILED,
}


@dataclass(frozen=True)
class DockerCreateConfig:
    """How containers are made; `SandboxSpec.provider_options` overrides it for one sandbox."""

    network: str | None = None
    """Network to join; "none" for no network at all, None for the engine's default."""
    pull: str = "missing"
    """When to pull the image: always, missing, never."""
    user: str | None = None
    """User that commands run as unless they say otherwise."""
    pids_limit: int = 4096
    """How many processes the container may hold."""
    no_new_privileges: bool = True
    """Forbid setuid programs (sudo, su) to gain rights."""
    volumes: Sequence[str] = ()
    """Bind mounts, as `host:container[:ro]`."""
    extra_args: Sequence[str] = ()
    """Further arguments of `docker run`, before the image."""


class DockerProvider(EngineProvider):
    """A container per sandbox."""

    name = "docker"

    def __init__(
        self,
        create: DockerCreateConfig | Mapping[str, Any] | None = None,
        *,
        executable: str = "docker",
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        transfer_timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            executable,
            "install Docker Engine (docs.docker.com/engine/install), or set `executable: podman` if you have Podman",
            max_output_bytes=max_output_bytes,
            transfer_timeout_s=transfer_timeout_s,
        )
        given = create if create is not None else {}
        self._create = override(DockerCreateConfig(), given, self.name) if isinstance(given, Mapping) else given

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a container and wait until it takes commands."""
        if not spec.image:
            raise SandboxCreateError("a docker sandbox needs an image\nhint: set `image` of the sandbox spec")
        handle = SandboxHandle(f"nemo-gym-{uuid4().hex}", self.name)
        arguments, client_env = self._run_arguments(handle.sandbox_id, spec)
        what = f"a docker sandbox from image {spec.image!r}"
        try:
            await self._start(arguments, client_env, what, spec.ready_timeout_s or DEFAULT_READY_TIMEOUT_S)
            await self._check_ready(handle, what)
            await self._place_files(handle, spec)
        except BaseException:
            # Whatever stopped us, cancellation included: the container may be there although nobody will own it.
            with contextlib.suppress(OSError, SandboxError):
                await self.close(handle)
            raise
        return handle

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """What the engine says about the container; one that is gone has stopped."""
        state = await self._inspect(handle, "{{.State.Status}}")
        return SandboxStatus.STOPPED if state is None else STATUSES.get(state, SandboxStatus.UNKNOWN)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """The loopback address to which `port` is published."""
        shown = await self._client(["port", handle.sandbox_id, f"{port}/tcp"])
        address = shown.stdout.decode(errors="replace").strip().partition("\n")[0]
        if shown.return_code != 0 or not address:
            raise SandboxError(
                f"port {port} of sandbox {handle.sandbox_id!r} is not published: {tail(shown.stderr)}\n"
                f"hint: name it when the sandbox is made, `ports: [{port}]` of the sandbox spec"
            )
        return SandboxEndpoint(f"http://{address}")

    async def close(self, handle: SandboxHandle) -> None:
        """Kill and remove the container."""
        removed = await self._client(["rm", "--force", "--volumes", handle.sandbox_id])
        if (
            removed.return_code != 0
            and not _mentions(removed, GONE)
            and "already in progress" not in tail(removed.stderr)
        ):
            raise SandboxError(f"cannot remove sandbox {handle.sandbox_id!r}: {tail(removed.stderr)}")

    async def aclose(self) -> None:
        """Nothing is held between calls."""

    def dump(self, handle: SandboxHandle) -> dict[str, Any]:
        """The engine knows everything under the container's name."""
        return {}

    async def connect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        """Take up a running container."""
        handle = SandboxHandle(sandbox_id, self.name)
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(f"docker sandbox {sandbox_id!r} is not running")
        return handle

    def _run_arguments(self, container: str, spec: SandboxSpec) -> tuple[list[str], dict[str, str]]:
        config = override(self._create, spec.provider_options, self.name)
        env_arguments, client_env = _env_arguments(spec.env)
        arguments = ["run", "--detach", "--rm", "--init", "--name", container, "--label", f"{LABEL}={container}"]
        for key, value in spec.metadata.items():
            arguments += ["--label", f"nemo_gym.metadata.{key}={value}"]
        arguments += ["--pull", config.pull, "--pids-limit", str(config.pids_limit)]
        arguments += ["--security-opt", "no-new-privileges"] if config.no_new_privileges else []
        arguments += ["--network", config.network] if config.network else []
        arguments += ["--user", config.user] if config.user else []
        arguments += _resource_arguments(spec)
        arguments += ["--workdir", spec.workdir] if spec.workdir else []
        arguments += env_arguments
        for volume in config.volumes:
            arguments += ["--volume", volume]
        for port in spec.ports:
            arguments += ["--publish", f"127.0.0.1::{port}"]
        arguments += [*config.extra_args, "--entrypoint", SHELL, spec.image or "", "-c", *_main_process(spec)]
        return arguments, client_env

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
        env_arguments, client_env = _env_arguments(env)
        arguments = ["exec", *(["--interactive"] if interactive else []), *(["--workdir", cwd] if cwd else [])]
        arguments += ["--user", str(user)] if user is not None else []
        return [*arguments, *env_arguments, handle.sandbox_id, *argv], client_env

    async def _check_ready(self, handle: SandboxHandle, what: str) -> None:
        completed, cause = await self._run(handle, [SHELL, "-c", ":"], timeout_s=CONTROL_TIMEOUT_S)
        if cause is not None or completed.return_code != 0:
            raise SandboxCreateError(f"cannot make {what}: it runs no commands\n{tail(completed.stderr)}")

    async def _cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        if completed.return_code == KILLED_RETURN_CODE:
            out_of_memory = await self._inspect(handle, "{{.State.OOMKilled}}")
            gone = out_of_memory is None
        else:
            out_of_memory = None
            broken = completed.return_code != 0 and _mentions(completed, GONE + UNREACHABLE)
            gone = broken and await self.status(handle) is not SandboxStatus.RUNNING
        if gone:
            raise SandboxNotRunningError(
                f"docker sandbox {handle.sandbox_id!r} is not running: {tail(completed.stderr)}\n"
                "hint: its time to live may be over, or its main process ended"
            )
        return "oom" if out_of_memory == "true" else None

    async def _inspect(self, handle: SandboxHandle, template: str) -> str | None:
        """A property of the container; None if there is no such container."""
        shown = await self._client(["inspect", "--type", "container", "--format", template, handle.sandbox_id])
        if shown.return_code == 0:
            return shown.stdout.decode(errors="replace").strip()
        if _mentions(shown, GONE):
            return None
        raise SandboxNotRunningError(
            f"cannot ask about docker sandbox {handle.sandbox_id!r}: {tail(shown.stderr)}\n"
            "hint: is the engine running? `docker info` tells"
        )


def _env_arguments(env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Arguments that name the variables, and the client's environment that holds their values.

    The client passes on what is only named, so that no value shows in the list of processes.
    """
    arguments: list[str] = []
    by_name: dict[str, str] = {}
    for name, value in env.items():
        if name in CLIENT_VARIABLES or name.startswith(CLIENT_PREFIXES):
            arguments += ["--env", f"{name}={value}"]
        else:
            arguments += ["--env", name]
            by_name[name] = value
    return arguments, by_name


def _resource_arguments(spec: SandboxSpec) -> list[str]:
    wanted = spec.resources
    arguments = ["--cpus", f"{wanted.cpu:g}"] if wanted.cpu else []
    if wanted.memory_mib:
        # The same bound for memory and swap: a sandbox that is out of memory ends rather than slowing the machine.
        arguments += ["--memory", f"{wanted.memory_mib}m", "--memory-swap", f"{wanted.memory_mib}m"]
    return [*arguments, *(["--gpus", str(wanted.gpu)] if wanted.gpu else [])]


def _main_process(spec: SandboxSpec) -> list[str]:
    lifetime = str(max(1, round(spec.ttl_s))) if spec.ttl_s else str(FOREVER_S)
    if spec.entrypoint is None:
        return ['exec sleep "$1"', "sandbox", lifetime]
    entrypoint = [SHELL, "-c", spec.entrypoint] if isinstance(spec.entrypoint, str) else list(spec.entrypoint)
    return [MAIN_PROCESS, "sandbox", lifetime, *entrypoint]


def _mentions(completed: Completed, phrases: Sequence[str]) -> bool:
    return any(phrase in tail(completed.stderr) for phrase in phrases)
