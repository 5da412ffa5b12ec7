# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Docker containers, through the `docker` program (or one that speaks like it, such as Podman).

The container removes itself when its main process ends, and that process ends with the time to live, so nothing is
left behind if its owner dies. `docker ps --filter label=nemo-gym.sandbox` finds what is there. Limits on disk space and
the choice of a GPU type are left to the engine's own configuration.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from nemo_gym.sandbox.providers.base import (
    DEFAULT_EXEC_TIMEOUT_S,
    KILLED_RETURN_CODE,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxSpec,
    SandboxStatus,
    stringify_env,
)
from nemo_gym.sandbox.providers.commands import SHELL, SandboxCommand
from nemo_gym.sandbox.providers.engine import (
    CONTROL_TIMEOUT_S,
    EXEC_MARK,
    EngineProvider,
    ProbeConfig,
    find_program,
    override,
    quote_end,
    read_settings,
)
from nemo_gym.sandbox.providers.processes import DEFAULT_MAX_OUTPUT_BYTES, Completed

LABEL = "nemo-gym.sandbox"
INSTALL_HINT = "install Docker Engine (docs.docker.com/engine/install), or set `executable: podman` if you have Podman"
DEFAULT_PIDS_LIMIT = 4096
# The shell stays, because a process that is the first of its container cannot be killed from inside.
MAIN_PROCESS = 'ttl=$1; shift; "$@" & main=$!; { sleep "$ttl"; kill -9 "$main"; } >/dev/null 2>&1 & wait "$main"'
FIND_SHELL = "command -v bash >/dev/null 2>&1 && echo bash || echo sh"
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
    "dead": SandboxStatus.ERROR,
}


@dataclass(frozen=True)
class DockerCreateConfig:
    """How containers are made; `SandboxSpec.provider_options` overrides it for one sandbox."""

    keepalive_shell: str = SHELL
    """Shell that runs `keepalive_cmd`."""
    keepalive_cmd: str = "exec sleep 2147483647"
    """Main process of a sandbox without an entrypoint."""
    start_timeout_s: float = 600
    """How long starting may take, image download included, unless the spec says it."""
    use_init: bool = True
    """Let the engine put a process in front that collects orphans."""
    network: str | None = None
    """Network to join; "none" for no network at all, None for the engine's default."""
    read_only: bool = False
    """Make the image's own files unchangeable."""
    cap_drop: Sequence[str] = field(default_factory=list)
    """Capabilities to take away, e.g. "ALL"."""
    security_opt: Sequence[str] = field(default_factory=list)
    """Security options. "no-new-privileges" is added unless it is named here, e.g. as "no-new-privileges=false"."""
    pids_limit: int | None = None
    """How many processes the container may hold; None is 4096, -1 any number."""
    extra_run_args: Sequence[str] = field(default_factory=list)
    """Further arguments of `docker run`, before the image."""
    apply_resource_limits: bool = True
    """Whether the spec's bounds on CPU and memory hold."""
    publish_host: str = "127.0.0.1"
    """Address at which published ports are reached."""


@dataclass(frozen=True)
class DockerExecConfig:
    """How commands are run."""

    default_timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S
    """Deadline of a command whose caller gives None."""
    extra_exec_args: Sequence[str] = field(default_factory=list)
    """Further arguments of `docker exec`, before the container."""
    concurrency: int = 32
    """How many commands of this provider run at a time; others wait, which does not count for their deadline."""
    exec_shell: str | None = None
    """Shell of commands; None is bash where the image has it, else sh."""


@dataclass(frozen=True)
class DockerProbeConfig(ProbeConfig):
    """How a new container shows that it works."""


@dataclass(frozen=True)
class DockerOptions(DockerCreateConfig):
    """What `SandboxSpec.provider_options` may say."""

    volumes: Sequence[str] = ()
    """Bind mounts, as `host:container[:ro]`."""
    run_args: Sequence[str] = ()
    """Further arguments of `docker run` for this sandbox."""


def _require_docker() -> str:
    """Return the path of the `docker` program."""
    return find_program("docker", INSTALL_HINT)


class DockerProvider(EngineProvider):
    """A container per sandbox."""

    name = "docker"

    def __init__(
        self,
        exec: DockerExecConfig | Mapping[str, Any] | None = None,
        create: DockerCreateConfig | Mapping[str, Any] | None = None,
        probe: DockerProbeConfig | Mapping[str, Any] | None = None,
        *,
        executable: str | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        transfer_timeout_s: float = 600.0,
    ) -> None:
        self._exec_config = read_settings(DockerExecConfig, exec, self.name)
        self._create_config = read_settings(DockerCreateConfig, create, self.name)
        super().__init__(
            find_program(executable, INSTALL_HINT) if executable else _require_docker() or "docker",
            probe=read_settings(DockerProbeConfig, probe, self.name),
            concurrency=self._exec_config.concurrency,
            default_timeout_s=self._exec_config.default_timeout_s,
            max_output_bytes=max_output_bytes,
            transfer_timeout_s=transfer_timeout_s,
        )

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a container and wait until it takes commands."""
        if not spec.image:
            raise SandboxCreateError("a docker sandbox needs an image\nhint: set `image` of the sandbox spec")
        options = override(DockerOptions(**vars(self._create_config)), spec.provider_options, self.name)
        handle = SandboxHandle(f"nemo-gym-{uuid4().hex}", self.name, self._exec_config.exec_shell or "sh")
        arguments, client_env = _build_run_arguments(handle.sandbox_id, spec, options)
        what = f"a docker sandbox from image {spec.image!r}"
        try:
            await self._start(arguments, client_env, what, spec.ready_timeout_s or options.start_timeout_s)
            if self._exec_config.exec_shell is None:
                handle.raw = await self._find_shell(handle, options.keepalive_shell, what)
            await self._verify(handle, what)
        except BaseException:
            # Whatever stopped us, cancellation included: the container may be there although nobody will own it.
            with contextlib.suppress(OSError, SandboxError):
                await self.close(handle)
            raise
        return handle

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return what the engine says about the container; one that is gone has stopped."""
        state = await self._inspect(handle, "{{.State.Status}}")
        return SandboxStatus.STOPPED if state is None else STATUSES.get(state, SandboxStatus.UNKNOWN)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the loopback address to which `port` is published."""
        shown = await self._run_client(["port", handle.sandbox_id, f"{port}/tcp"])
        address = shown.stdout.decode(errors="replace").strip().partition("\n")[0]
        if shown.return_code != 0 or not address:
            raise SandboxError(
                f"port {port} of sandbox {handle.sandbox_id!r} is not published: {quote_end(shown.stderr)}\n"
                f"hint: name it when the sandbox is made, `ports: [{port}]` of the sandbox spec"
            )
        host, _, published = address.rpartition(":")
        return SandboxEndpoint(f"http://{'127.0.0.1' if host in {'0.0.0.0', '[::]'} else host}:{published}")

    async def close(self, handle: SandboxHandle) -> None:
        """Kill and remove the container."""
        await self._close_terminals(handle)
        removed = await self._run_client(["rm", "--force", "--volumes", handle.sandbox_id])
        if (
            removed.return_code != 0
            and not _mentions(removed, GONE)
            and "already in progress" not in quote_end(removed.stderr)
        ):
            raise SandboxError(f"cannot remove sandbox {handle.sandbox_id!r}: {quote_end(removed.stderr)}")

    async def aclose(self) -> None:
        """Do nothing: nothing is held between calls."""

    def _describe(self, handle: SandboxHandle) -> dict[str, Any]:
        # The engine knows all else under the container's name.
        return {"shell": handle.raw}

    async def _reconnect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        handle = SandboxHandle(sandbox_id, self.name, state["shell"])
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(f"docker sandbox {sandbox_id!r} is not running")
        return handle

    def _get_shell(self, handle: SandboxHandle) -> Sequence[str]:
        return (handle.raw or "sh", "-c")

    async def _find_shell(self, handle: SandboxHandle, shell: str, what: str) -> str:
        completed, cause = await self._run(handle, SandboxCommand([shell, "-c", FIND_SHELL], CONTROL_TIMEOUT_S))
        found = completed.stdout.decode(errors="replace").strip()
        if cause is not None or completed.return_code != 0 or found not in {"bash", "sh"}:
            raise SandboxCreateError(
                f"cannot make {what}: it runs no commands\n{quote_end(completed.stderr)}\n"
                "hint: does the image hold a shell? `create: {keepalive_shell: ...}` names another than /bin/sh"
            )
        return found

    def _build_entry(
        self, handle: SandboxHandle, command: SandboxCommand, *, interactive: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        env_arguments, client_env = _build_env_arguments(command.env)
        arguments = [
            "exec",
            *(["-i"] if interactive else []),
            *(["-t"] if command.wants_terminal else []),
            *(["-w", command.cwd] if command.cwd else []),
            *env_arguments,
        ]
        arguments += ["--user", str(command.user)] if command.user is not None else []
        return [*arguments, *self._exec_config.extra_exec_args, handle.sandbox_id, *command.argv], client_env

    async def _find_cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        if completed.return_code == KILLED_RETURN_CODE:
            out_of_memory = await self._inspect(handle, "{{.State.OOMKilled}}")
            gone = out_of_memory is None
        else:
            out_of_memory = None
            broken = completed.return_code != 0 and _mentions(completed, GONE + UNREACHABLE)
            gone = broken and await self.status(handle) is not SandboxStatus.RUNNING
        if gone:
            raise SandboxNotRunningError(
                f"docker sandbox {handle.sandbox_id!r} is not running: {quote_end(completed.stderr)}\n"
                "hint: its time to live may be over, or its main process ended"
            )
        return "oom" if out_of_memory == "true" else None

    async def _inspect(self, handle: SandboxHandle, template: str) -> str | None:
        """Return a property of the container; None if there is no such container."""
        shown = await self._run_client(["inspect", "--type", "container", "--format", template, handle.sandbox_id])
        if shown.return_code == 0:
            return shown.stdout.decode(errors="replace").strip()
        if _mentions(shown, GONE):
            return None
        raise SandboxNotRunningError(
            f"cannot ask about docker sandbox {handle.sandbox_id!r}: {quote_end(shown.stderr)}\n"
            "hint: is the engine running? `docker info` tells"
        )


def _build_env_arguments(env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments that name the variables, and the client's environment that holds their values.

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


def _build_run_arguments(container: str, spec: SandboxSpec, options: DockerOptions) -> tuple[list[str], dict[str, str]]:
    """Return arguments of the client that start a container, and what to add to the client's own environment."""
    env_arguments, client_env = _build_env_arguments(stringify_env(spec.env))
    arguments = ["run", "-d", "--name", container, "--label", f"{LABEL}=1"]
    for key, value in spec.metadata.items():
        arguments += ["--label", f"{LABEL}.{key}={value}"]
    arguments += ["--init"] if options.use_init else []
    arguments += ["-w", spec.workdir] if spec.workdir else []
    arguments += env_arguments
    wanted = spec.resources
    if options.apply_resource_limits:
        arguments += ["--cpus", f"{wanted.cpu:g}"] if wanted.cpu else []
        # The same bound for memory and swap: a sandbox that is out of memory ends rather than slowing the machine.
        memory = f"{wanted.memory_mib}m"
        arguments += ["--memory", memory, "--memory-swap", memory] if wanted.memory_mib else []
    arguments += ["--gpus", str(wanted.gpu)] if wanted.gpu else []
    arguments += ["--network", options.network] if options.network else []
    arguments += ["--read-only"] if options.read_only else []
    security = list(options.security_opt)
    if not any(entry.startswith("no-new-privileges") for entry in security):
        security.append("no-new-privileges")
    limit = DEFAULT_PIDS_LIMIT if options.pids_limit is None else options.pids_limit
    ports = [f"{options.publish_host}::{port}/tcp" for port in spec.ports]
    for flag, values in (
        ("--cap-drop", options.cap_drop),
        ("--security-opt", security),
        ("--pids-limit", [str(limit)]),
        ("--publish", ports),
        ("-v", options.volumes),
    ):
        for value in values:
            arguments += [flag, value]
    arguments += [*options.extra_run_args, *options.run_args, "--rm"]
    program, *rest = _build_main_process(spec, options)
    return [*arguments, "--entrypoint", program, spec.image or "", *rest], client_env


def _build_main_process(spec: SandboxSpec, options: DockerOptions) -> list[str]:
    shell = options.keepalive_shell
    if spec.entrypoint is None or isinstance(spec.entrypoint, str):
        main = [shell, "-c", spec.entrypoint or options.keepalive_cmd]
    else:
        main = list(spec.entrypoint)
    if not spec.ttl_s:
        return main
    return [shell, "-c", MAIN_PROCESS, "sandbox", str(max(1, round(spec.ttl_s))), *main]


def _mentions(completed: Completed, phrases: Sequence[str]) -> bool:
    return any(phrase in quote_end(completed.stderr) for phrase in phrases)
