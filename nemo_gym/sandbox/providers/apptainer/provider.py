# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Apptainer instances, through the `apptainer` program (or `singularity`): no root, no daemon.

An instance's name contains its expiry time: `apptainer instance list` shows the instances, and creating a sandbox stops
expired ones. Processes share the machine's network unless `extra_start_args` say otherwise. Commands run as our own
user, or as root through a user mapping. Of the machine's home folders, /tmp and environment, an instance sees only what
is bound or passed.
"""

import asyncio
import contextlib
import json
import logging
import os
import pwd
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from nemo_gym._isolation.inside.containment import remove_folder
from nemo_gym.sandbox.providers.base import (
    DEFAULT_EXEC_TIMEOUT_S,
    SandboxConfigError,
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
    EngineProvider,
    ProbeConfig,
    find_program,
    override,
    quote_end,
    read_settings,
)
from nemo_gym.sandbox.providers.processes import DEFAULT_MAX_OUTPUT_BYTES, Completed

LOG = logging.getLogger(__name__)

NAME_PREFIX = "nemo-gym"
NEVER = 0
GONE = ("no instance found", "no instances found", "instance not found")
RUN_ENTRYPOINT = 'nohup "$@" >/dev/null 2>&1 </dev/null &'
INSTALL_HINT = "install Apptainer (apptainer.org/docs), or set `bin_path` to the program"
ROOT = ("root", "0")
# Options about what commands may write; the engine refuses more than one of them.
WRITABLE = ("--writable", "--writable-tmpfs", "--overlay", "-w", "-o")


@dataclass(frozen=True)
class ApptainerCreateConfig:
    """How to create instances; `SandboxSpec.provider_options` overrides this for one sandbox."""

    mount_point: str = "/sandbox"
    """Where commands have a folder on disk; anything they write elsewhere is kept in memory."""
    start_timeout_s: float = 600
    """How long starting may take, including the image download, unless the spec sets a limit."""
    extra_start_args: Sequence[str] = field(default_factory=list)
    """Extra arguments for `apptainer instance start`, before the image, e.g. ["--net", "--network", "none"]."""
    apply_resource_limits: bool = True
    """Whether to enforce the spec's limits on CPU and memory, which needs cgroups that the user may manage."""


@dataclass(frozen=True)
class ApptainerExecConfig:
    """How to run commands."""

    default_timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S
    """Deadline for commands whose caller sets none."""
    fakeroot_for_root: bool = True
    """Let commands run as root, through a user mapping (/etc/subuid)."""
    default_binds: Sequence[str] = field(default_factory=list)
    """Bind mounts of every sandbox, as `host:container[:ro]`."""
    extra_exec_args: Sequence[str] = field(default_factory=list)
    """Extra arguments for `apptainer exec`, before the instance."""
    concurrency: int = 32
    """How many commands of this provider run at a time; waiting does not count toward the deadline."""


@dataclass(frozen=True)
class ApptainerProbeConfig(ProbeConfig):
    """The command that checks a new instance."""


@dataclass(frozen=True)
class ApptainerOptions(ApptainerCreateConfig):
    """What `SandboxSpec.provider_options` may set."""

    binds: Sequence[str] = ()
    """Bind mounts of this sandbox, as `host:container[:ro]`."""


@dataclass(frozen=True)
class ApptainerSandbox:
    """What we need to know about an instance to run commands in it."""

    workdir: str | None
    env: Mapping[str, str]
    shares_network: bool


def _require_apptainer(bin_path: str | None = None) -> str:
    """Return the path of the program: `bin_path` if given, else `apptainer`, else `singularity`."""
    if bin_path is None and shutil.which("apptainer") is None and shutil.which("singularity") is not None:
        return find_program("singularity", INSTALL_HINT)
    return find_program(bin_path or "apptainer", INSTALL_HINT)


class ApptainerProvider(EngineProvider):
    """An instance per sandbox."""

    name = "apptainer"

    def __init__(
        self,
        exec: ApptainerExecConfig | Mapping[str, Any] | None = None,
        create: ApptainerCreateConfig | Mapping[str, Any] | None = None,
        probe: ApptainerProbeConfig | Mapping[str, Any] | None = None,
        *,
        bin_path: str | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        transfer_timeout_s: float = 600.0,
    ) -> None:
        self._exec_config = read_settings(ApptainerExecConfig, exec, self.name)
        self._create_config = read_settings(ApptainerCreateConfig, create, self.name)
        executable = _require_apptainer(bin_path) or bin_path or "apptainer"
        super().__init__(
            executable,
            probe=read_settings(ApptainerProbeConfig, probe, self.name),
            concurrency=self._exec_config.concurrency,
            default_timeout_s=self._exec_config.default_timeout_s,
            max_output_bytes=max_output_bytes,
            transfer_timeout_s=transfer_timeout_s,
        )
        # Only variables with this prefix reach the container. Unlike arguments, their values do not show in the
        # list of processes.
        self._variables = "SINGULARITY" if Path(executable).name == "singularity" else "APPTAINER"
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def _plan(self, spec: SandboxSpec) -> tuple[SandboxHandle, ApptainerOptions]:
        options = override(ApptainerOptions(**vars(self._create_config)), spec.provider_options, self.name)
        expires_at = NEVER
        if spec.ttl_s:
            # Others stop the instance after this time, so it includes the time that starting may take.
            start_s = spec.ready_timeout_s or options.start_timeout_s
            expires_at = int(time.time() + start_s + spec.ttl_s) + 1
        raw = ApptainerSandbox(spec.workdir, stringify_env(spec.env), "--net" not in options.extra_start_args)
        return SandboxHandle(f"{NAME_PREFIX}-{expires_at}-{uuid4().hex}", self.name, raw), options

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start an instance; its time to live begins when it accepts commands."""
        handle = await super().create(spec)
        self._end_after(handle, spec.ttl_s)
        return handle

    async def _launch(self, handle: SandboxHandle, spec: SandboxSpec, options: ApptainerOptions, what: str) -> None:
        instance = handle.sandbox_id
        os.mkdir(_locate_staging(instance), mode=0o700)
        with _write_env_file(_get_sandbox(handle).env) as env_arguments:
            arguments = [*self._build_start_arguments(instance, spec, options), *env_arguments]
            arguments += [_build_image_reference(spec.image or ""), instance]
            await self._start(arguments, {}, what, spec.ready_timeout_s or options.start_timeout_s)
        await self._prepare(handle, spec, what)
        await self._stop_expired()

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return `RUNNING` if the engine lists the instance."""
        if handle.sandbox_id in await self._list_instances():
            return SandboxStatus.RUNNING
        return SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the machine's own port, which the instance shares."""
        if not _get_sandbox(handle).shares_network:
            raise SandboxError(
                f"sandbox {handle.sandbox_id!r} has a network of its own, so port {port} cannot be reached from here\n"
                "hint: leave `--net` out of `extra_start_args`"
            )
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance and everything in it, and remove its folder."""
        await self._close_terminals(handle)
        timer = self._timers.pop(handle.sandbox_id, None)
        if timer is not None:
            timer.cancel()
        # SIGKILL at once, so that programs inside cannot delay it.
        stopped = await self._run_client(["instance", "stop", "--signal", "SIGKILL", handle.sandbox_id])
        if stopped.return_code != 0 and not any(phrase in quote_end(stopped.stderr).lower() for phrase in GONE):
            raise SandboxError(f"cannot stop sandbox {handle.sandbox_id!r}: {quote_end(stopped.stderr)}")
        staging = _locate_staging(handle.sandbox_id)
        try:
            await asyncio.to_thread(remove_folder, str(staging))
        except OSError as error:  # files of another user of the mapping
            LOG.warning("cannot remove the folder %s of an apptainer sandbox: %s", staging, error)

    async def aclose(self) -> None:
        """Wait for sandboxes that are still ending."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _describe(self, handle: SandboxHandle) -> dict[str, Any]:
        # Without the environment, which may hold secrets: whoever connects passes it with each command.
        raw = _get_sandbox(handle)
        return {"workdir": raw.workdir, "shares_network": raw.shares_network}

    def _restore(self, state: Mapping[str, Any]) -> ApptainerSandbox:
        return ApptainerSandbox(state["workdir"], {}, state["shares_network"])

    def _get_shell(self, handle: SandboxHandle) -> Sequence[str]:
        return ("sh", "-c")

    def _build_start_arguments(self, instance: str, spec: SandboxSpec, options: ApptainerOptions) -> list[str]:
        arguments = ["instance", "start", "--containall"]
        if not set(WRITABLE) & {argument.partition("=")[0] for argument in options.extra_start_args}:
            arguments += ["--writable-tmpfs"]
        own = f"{_locate_staging(instance)}:{options.mount_point}"
        for bind in (own, *self._exec_config.default_binds, *options.binds):
            arguments += ["--bind", bind]
        wanted = spec.resources
        if wanted.cpu and options.apply_resource_limits:
            arguments += ["--cpus", f"{wanted.cpu:g}"]
        if wanted.memory_mib and options.apply_resource_limits:
            arguments += ["--memory", f"{wanted.memory_mib}M"]
        if wanted.gpu:
            arguments += ["--nv"]
        return [*arguments, *options.extra_start_args]

    def _build_entry(
        self, handle: SandboxHandle, command: SandboxCommand, *, interactive: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        raw = _get_sandbox(handle)
        arguments = ["exec", "--cleanenv"]
        if folder := command.cwd or raw.workdir:
            arguments += ["--pwd", folder]
        if self._needs_fakeroot(command.user):
            arguments += ["--fakeroot"]
        arguments += [*self._exec_config.extra_exec_args, f"instance://{handle.sandbox_id}", *command.argv]
        passed = {f"{self._variables}ENV_{name}": value for name, value in {**raw.env, **command.env}.items()}
        # Otherwise the engine would expand `$` and backquotes in values.
        passed[f"{self._variables}_NO_EVAL"] = "1"
        return arguments, passed

    def _needs_fakeroot(self, user: str | int | None) -> bool:
        if user is None:
            return False
        if str(user) in ROOT and self._exec_config.fakeroot_for_root:
            return True
        own = {str(os.getuid())}
        with contextlib.suppress(KeyError):
            own.add(pwd.getpwuid(os.getuid()).pw_name)
        if str(user) not in own:
            raise SandboxConfigError(
                f"an apptainer sandbox cannot run a command as user {str(user)!r}, only as {' / '.join(sorted(own))}\n"
                "hint: leave `user` unset, or make it root with `exec: {fakeroot_for_root: true}`"
            )
        return False

    async def _prepare(self, handle: SandboxHandle, spec: SandboxSpec, what: str) -> None:
        """Create the working folder and start the entrypoint."""
        commands = []
        if spec.workdir:
            make = [SHELL, "-c", 'mkdir -p -- "$1"', "sandbox", spec.workdir]
            commands.append(SandboxCommand(make, CONTROL_TIMEOUT_S, cwd="/"))  # the folder does not exist yet
        if spec.entrypoint is not None:
            main = spec.entrypoint
            if isinstance(main, str):
                main = [SHELL, "-c", main]
            start = [SHELL, "-c", RUN_ENTRYPOINT, "sandbox", *main]
            commands.append(SandboxCommand(start, CONTROL_TIMEOUT_S))
        for command in commands:
            completed, cause = await self._run(handle, command)
            if cause is not None or completed.return_code != 0:
                raise SandboxCreateError(f"cannot create {what}: it cannot run commands\n{quote_end(completed.stderr)}")

    async def _find_cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        reason = quote_end(completed.stderr)
        suspect = completed.return_code != 0 and any(phrase in reason.lower() for phrase in GONE)
        if suspect and await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(
                f"apptainer sandbox {handle.sandbox_id!r} is not running: {reason}\nhint: its time to live may be over"
            )
        return None

    async def _list_instances(self) -> set[str]:
        listed = await self._run_client(["instance", "list", "--json"])
        if listed.return_code != 0:
            raise SandboxError(f"cannot list apptainer instances: {quote_end(listed.stderr)}")
        return {entry["instance"] for entry in json.loads(listed.stdout or b"{}").get("instances") or ()}

    async def _stop_expired(self) -> None:
        """Stop expired instances that their owners left running."""
        with contextlib.suppress(SandboxError):
            for name in await self._list_instances():
                if _read_expiry(name) != NEVER and _read_expiry(name) < time.time():
                    LOG.warning("stopping apptainer sandbox %r: its time to live is over", name)
                    await self.close(SandboxHandle(name, self.name))

    def _end_after(self, handle: SandboxHandle, ttl_s: float | None) -> None:
        def end() -> None:
            task = asyncio.ensure_future(self.close(handle))
            self._ending.add(task)
            task.add_done_callback(self._log_failed_end)

        if ttl_s:
            self._timers[handle.sandbox_id] = asyncio.get_running_loop().call_later(ttl_s, end)

    def _log_failed_end(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.warning("cannot stop a sandbox whose time to live is over: %s", task.exception())


@contextlib.contextmanager
def _write_env_file(env: Mapping[str, str]) -> Iterator[list[str]]:
    """Write the variables for the instance's start script to a file that only we can read."""
    if not env:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", prefix=f"{NAME_PREFIX}-env-", encoding="utf-8") as file:
        file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in env.items())
        file.flush()
        yield ["--no-eval", "--env-file", file.name]


def _locate_staging(instance: str) -> Path:
    """Return the folder on this machine that an instance sees at its mount point."""
    return Path(tempfile.gettempdir(), instance)


def _build_image_reference(image: str) -> str:
    """Return a path or a reference with a scheme unchanged; a bare name is an image in a container registry."""
    if "://" in image or image.endswith(".sif") or image.startswith(("/", ".")):
        return image
    return f"docker://{image}"


def _read_expiry(instance: str) -> int:
    """Return the Unix time at which one of our instances expires; NEVER for any other instance."""
    prefix, _, rest = instance.partition(f"{NAME_PREFIX}-")
    number = rest.partition("-")[0]
    return int(number) if not prefix and number.isdigit() else NEVER


def _get_sandbox(handle: SandboxHandle) -> ApptainerSandbox:
    if not isinstance(handle.raw, ApptainerSandbox):
        raise SandboxConfigError(f"{handle.sandbox_id!r} is not a sandbox of the apptainer provider")
    return handle.raw
