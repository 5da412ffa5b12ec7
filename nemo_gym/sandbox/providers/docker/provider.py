# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Docker containers, through the `docker` program or a compatible one such as Podman.

A container removes itself when its main process ends, at the latest after its time to live, so nothing is left behind
if its owner dies. `docker ps --filter label=nemo-gym.sandbox` lists the containers. Disk limits and the choice of a GPU
type are left to the engine's own configuration.
"""

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
from nemo_gym.sandbox.providers.command_provider import SHELL, SandboxCommand
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
# The shell stays the first process of the container, because that one cannot be killed from inside.
MAIN_PROCESS = 'ttl=$1; shift; "$@" & main=$!; { sleep "$ttl"; kill -9 "$main"; } >/dev/null 2>&1 & wait "$main"'
FIND_SHELL = "command -v bash >/dev/null 2>&1 && echo bash || echo sh"
# Passed by value: variables that the client program itself reads, and the mark, which the client must not have.
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
    """How to create containers; `SandboxSpec.provider_options` overrides this for one sandbox."""

    keepalive_shell: str = SHELL
    """Shell that runs `keepalive_cmd`."""
    keepalive_cmd: str = "exec sleep 2147483647"
    """Main process of a sandbox without an entrypoint."""
    start_timeout_s: float = 600
    """How long starting may take, including the image download, unless the spec sets a limit."""
    use_init: bool = True
    """Run the engine's init process, which reaps orphans."""
    network: str | None = None
    """Network to join; "none" for no network at all, None for the engine's default."""
    read_only: bool = False
    """Make the image's own files read-only."""
    cap_drop: Sequence[str] = field(default_factory=list)
    """Capabilities to drop, e.g. "ALL"."""
    security_opt: Sequence[str] = field(default_factory=list)
    """Security options. "no-new-privileges" is added unless it is named here, e.g. as "no-new-privileges=false"."""
    pids_limit: int | None = None
    """How many processes the container may have; None means 4096, -1 no limit."""
    extra_run_args: Sequence[str] = field(default_factory=list)
    """Extra arguments for `docker run`, before the image."""
    apply_resource_limits: bool = True
    """Whether to enforce the spec's limits on CPU and memory."""
    publish_host: str = "127.0.0.1"
    """Address on which ports are published."""


@dataclass(frozen=True)
class DockerExecConfig:
    """How to run commands."""

    default_timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S
    """Deadline for commands whose caller sets none."""
    extra_exec_args: Sequence[str] = field(default_factory=list)
    """Extra arguments for `docker exec`, before the container."""
    concurrency: int = 32
    """How many commands of this provider run at a time; waiting does not count toward the deadline."""
    exec_shell: str | None = None
    """Shell of commands; None for bash if the image has it, else sh."""


@dataclass(frozen=True)
class DockerProbeConfig(ProbeConfig):
    """The command that checks a new container."""


@dataclass(frozen=True)
class DockerOptions(DockerCreateConfig):
    """What `SandboxSpec.provider_options` may set."""

    volumes: Sequence[str] = ()
    """Bind mounts, as `host:container[:ro]`."""
    run_args: Sequence[str] = ()
    """Extra arguments for `docker run` for this sandbox."""


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

    def _plan(self, spec: SandboxSpec) -> tuple[SandboxHandle, DockerOptions]:
        options = override(DockerOptions(**vars(self._create_config)), spec.provider_options, self.name)
        return SandboxHandle(f"nemo-gym-{uuid4().hex}", self.name, self._exec_config.exec_shell or "sh"), options

    async def _launch(self, handle: SandboxHandle, spec: SandboxSpec, options: DockerOptions, what: str) -> None:
        arguments, client_env = _build_run_arguments(handle.sandbox_id, spec, options)
        await self._start(arguments, client_env, what, spec.ready_timeout_s or options.start_timeout_s)
        if self._exec_config.exec_shell is None:
            handle.raw = await self._find_shell(handle, options.keepalive_shell, what)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the state that the engine reports; a container that is gone has stopped."""
        state = await self._inspect(handle, "{{.State.Status}}")
        if state is None:
            return SandboxStatus.STOPPED
        return STATUSES.get(state, SandboxStatus.UNKNOWN)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the address on which `port` is published."""
        shown = await self._run_client(["port", handle.sandbox_id, f"{port}/tcp"])
        address = shown.stdout.decode(errors="replace").strip().partition("\n")[0]
        if shown.return_code != 0 or not address:
            raise SandboxError(
                f"port {port} of sandbox {handle.sandbox_id!r} is not published: {quote_end(shown.stderr)}\n"
                f"hint: declare it in the sandbox spec: `ports: [{port}]`"
            )
        host, _, published = address.rpartition(":")
        if host in ("0.0.0.0", "[::]"):
            host = "127.0.0.1"
        return SandboxEndpoint(f"http://{host}:{published}")

    async def close(self, handle: SandboxHandle) -> None:
        """Kill and remove the container."""
        await self._close_terminals(handle)
        removed = await self._run_client(["rm", "--force", "--volumes", handle.sandbox_id])
        if removed.return_code != 0 and not _mentions(removed, (*GONE, "already in progress")):
            raise SandboxError(f"cannot remove sandbox {handle.sandbox_id!r}: {quote_end(removed.stderr)}")

    async def aclose(self) -> None:
        """Do nothing: the provider holds nothing between calls."""

    def _describe(self, handle: SandboxHandle) -> dict[str, Any]:
        # The engine knows everything else under the container's name.
        return {"shell": handle.raw}

    def _restore(self, state: Mapping[str, Any]) -> Any:
        return state["shell"]

    def _get_shell(self, handle: SandboxHandle) -> Sequence[str]:
        return (handle.raw or "sh", "-c")

    async def _find_shell(self, handle: SandboxHandle, shell: str, what: str) -> str:
        completed, cause = await self._run(handle, SandboxCommand([shell, "-c", FIND_SHELL], CONTROL_TIMEOUT_S))
        found = completed.stdout.decode(errors="replace").strip()
        if cause is not None or completed.return_code != 0 or found not in {"bash", "sh"}:
            raise SandboxCreateError(
                f"cannot create {what}: it cannot run commands\n{quote_end(completed.stderr)}\n"
                "hint: does the image have a shell? `create: {keepalive_shell: ...}` sets one other than /bin/sh"
            )
        return found

    def _build_entry(
        self, handle: SandboxHandle, command: SandboxCommand, *, interactive: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        env_arguments, client_env = _build_env_arguments(command.env)
        arguments = ["exec"]
        if interactive:
            arguments += ["-i"]
        if command.wants_terminal:
            arguments += ["-t"]
        if command.cwd:
            arguments += ["-w", command.cwd]
        arguments += env_arguments
        if command.user is not None:
            arguments += ["--user", str(command.user)]
        return [*arguments, *self._exec_config.extra_exec_args, handle.sandbox_id, *command.argv], client_env

    async def _find_cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        if completed.return_code == KILLED_RETURN_CODE:
            out_of_memory = await self._inspect(handle, "{{.State.OOMKilled}}")
            if out_of_memory == "true":
                return "oom"
            is_gone = out_of_memory is None
        else:
            is_broken = completed.return_code != 0 and _mentions(completed, GONE + UNREACHABLE)
            is_gone = is_broken and await self.status(handle) is not SandboxStatus.RUNNING
        if is_gone:
            raise SandboxNotRunningError(
                f"docker sandbox {handle.sandbox_id!r} is not running: {quote_end(completed.stderr)}\n"
                "hint: its time to live may be over, or its main process ended"
            )
        return None

    async def _inspect(self, handle: SandboxHandle, template: str) -> str | None:
        """Return a property of the container; None if there is no such container."""
        shown = await self._run_client(["inspect", "--type", "container", "--format", template, handle.sandbox_id])
        if shown.return_code == 0:
            return shown.stdout.decode(errors="replace").strip()
        if _mentions(shown, GONE):
            return None
        raise SandboxNotRunningError(
            f"cannot inspect docker sandbox {handle.sandbox_id!r}: {quote_end(shown.stderr)}\n"
            "hint: check with `docker info` that the engine is running"
        )


def _build_env_arguments(env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments that name the variables, and the client's environment with their values.

    The client passes on variables that are only named, so that no value shows in the list of processes.
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
    """Return the client's arguments to start a container, and what to add to the client's own environment."""
    env_arguments, client_env = _build_env_arguments(stringify_env(spec.env))
    arguments = ["run", "-d", "--name", container, "--label", f"{LABEL}=1"]
    for key, value in spec.metadata.items():
        arguments += ["--label", f"{LABEL}.{key}={value}"]
    if options.use_init:
        arguments += ["--init"]
    if spec.workdir:
        arguments += ["-w", spec.workdir]
    arguments += env_arguments
    wanted = spec.resources
    if wanted.cpu and options.apply_resource_limits:
        arguments += ["--cpus", f"{wanted.cpu:g}"]
    if wanted.memory_mib and options.apply_resource_limits:
        # Same limit for memory and swap: a sandbox that is out of memory ends instead of slowing down the machine.
        memory = f"{wanted.memory_mib}m"
        arguments += ["--memory", memory, "--memory-swap", memory]
    if wanted.gpu:
        arguments += ["--gpus", str(wanted.gpu)]
    if options.network:
        arguments += ["--network", options.network]
    if options.read_only:
        arguments += ["--read-only"]
    security = list(options.security_opt)
    if not any(entry.startswith("no-new-privileges") for entry in security):
        security.append("no-new-privileges")
    limit = options.pids_limit
    if limit is None:
        limit = DEFAULT_PIDS_LIMIT
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
    shell = options.keepalive_shell
    main = spec.entrypoint
    if main is None or isinstance(main, str):
        main = [shell, "-c", main or options.keepalive_cmd]
    if spec.ttl_s:
        main = [shell, "-c", MAIN_PROCESS, "sandbox", str(max(1, round(spec.ttl_s))), *main]
    program, *rest = main
    return [*arguments, "--entrypoint", program, spec.image or "", *rest], client_env


def _mentions(completed: Completed, phrases: Sequence[str]) -> bool:
    return any(phrase in quote_end(completed.stderr) for phrase in phrases)
