# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Apptainer instances, through the `apptainer` program (or `singularity`): no root, no daemon.

An instance carries its expiry in its name: `apptainer instance list` finds what is there, and making a sandbox stops
those whose time is over. Processes share the machine's network unless `extra_start_args` say otherwise, and a command
can only become root, by a user mapping. Instances see nothing of the machine's home folders, /tmp and environment but
what is bound or given.
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

from nemo_gym._execution.inside.containment import remove_folder
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
from nemo_gym.sandbox.providers.commands import SHELL, SandboxCommand
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
# Other choices about what commands may write; two of them at a time are refused by the engine.
WRITABLE = ("--writable", "--writable-tmpfs", "--overlay", "-w", "-o")


@dataclass(frozen=True)
class ApptainerCreateConfig:
    """How instances are made; `SandboxSpec.provider_options` overrides it for one sandbox."""

    mount_point: str = "/sandbox"
    """Where commands find a folder of their own on disk; what they write elsewhere is kept in memory."""
    start_timeout_s: float = 600
    """How long starting may take, image download included, unless the spec says it."""
    extra_start_args: Sequence[str] = field(default_factory=list)
    """Further arguments of `apptainer instance start`, before the image, e.g. ["--net", "--network", "none"]."""
    apply_resource_limits: bool = True
    """Whether the spec's bounds on CPU and memory hold; they need cgroups that the user may manage."""


@dataclass(frozen=True)
class ApptainerExecConfig:
    """How commands are run."""

    default_timeout_s: float | None = DEFAULT_EXEC_TIMEOUT_S
    """Deadline of a command whose caller gives None."""
    fakeroot_for_root: bool = True
    """Let commands for user root run as such, by a user mapping (/etc/subuid)."""
    default_binds: Sequence[str] = field(default_factory=list)
    """Bind mounts of every sandbox, as `host:container[:ro]`."""
    extra_exec_args: Sequence[str] = field(default_factory=list)
    """Further arguments of `apptainer exec`, before the instance."""
    concurrency: int = 32
    """How many commands of this provider run at a time; others wait, which does not count for their deadline."""


@dataclass(frozen=True)
class ApptainerProbeConfig(ProbeConfig):
    """How a new instance shows that it works."""


@dataclass(frozen=True)
class ApptainerOptions(ApptainerCreateConfig):
    """What `SandboxSpec.provider_options` may say."""

    binds: Sequence[str] = ()
    """Bind mounts of this sandbox, as `host:container[:ro]`."""


@dataclass(frozen=True)
class ApptainerSandbox:
    """What we must know about an instance to run commands in it."""

    workdir: str | None
    env: Mapping[str, str]
    shares_network: bool


def _require_apptainer(bin_path: str | None = None) -> str:
    """Return the path of the program: the one that is named, else `apptainer`, else `singularity`."""
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
        # Variables with this prefix reach the container although its environment is otherwise clean, and no value
        # shows in the list of processes.
        self._variables = "SINGULARITY" if Path(executable).name == "singularity" else "APPTAINER"
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start an instance and wait until it takes commands."""
        if not spec.image:
            raise SandboxCreateError("an apptainer sandbox needs an image\nhint: set `image` of the sandbox spec")
        options = override(ApptainerOptions(**vars(self._create_config)), spec.provider_options, self.name)
        env = stringify_env(spec.env)
        expires_at = int(time.time() + spec.ttl_s) + 1 if spec.ttl_s else NEVER
        instance = f"{NAME_PREFIX}-{expires_at}-{uuid4().hex}"
        raw = ApptainerSandbox(spec.workdir, env, "--net" not in options.extra_start_args)
        handle = SandboxHandle(instance, self.name, raw)
        what = f"an apptainer sandbox from image {spec.image!r}"
        try:
            os.mkdir(_locate_staging(instance), mode=0o700)
            with _env_file(env) as env_arguments:
                arguments = [*self._build_start_arguments(instance, spec, options), *env_arguments]
                arguments += [_build_image_reference(spec.image), instance]
                await self._start(arguments, {}, what, spec.ready_timeout_s or options.start_timeout_s)
            await self._prepare(handle, spec, what)
            await self._verify(handle, what)
        except BaseException:
            # Whatever stopped us, cancellation included: the instance may be there although nobody will own it.
            with contextlib.suppress(OSError, SandboxError):
                await self.close(handle)
            raise
        self._end_after(handle, spec.ttl_s)
        await self._stop_expired()
        return handle

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return `RUNNING` if the engine lists the instance."""
        return SandboxStatus.RUNNING if handle.sandbox_id in await self._list_instances() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the machine's own port, which the instance shares."""
        if not _get_sandbox(handle).shares_network:
            raise SandboxError(
                f"sandbox {handle.sandbox_id!r} has a network of its own, so port {port} cannot be reached from here\n"
                "hint: leave `--net` out of `extra_start_args`"
            )
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance and all that runs in it, and remove its folder."""
        await self._close_terminals(handle)
        timer = self._timers.pop(handle.sandbox_id, None)
        if timer is not None:
            timer.cancel()
        # Killed at once: what runs inside has nothing to say in how long this takes.
        stopped = await self._run_client(["instance", "stop", "--signal", "SIGKILL", handle.sandbox_id])
        if stopped.return_code != 0 and not any(phrase in quote_end(stopped.stderr).lower() for phrase in GONE):
            raise SandboxError(f"cannot stop sandbox {handle.sandbox_id!r}: {quote_end(stopped.stderr)}")
        staging = _locate_staging(handle.sandbox_id)
        try:
            await asyncio.to_thread(remove_folder, str(staging))
        except OSError as error:  # files of another user of the mapping
            LOG.warning("the folder %s of an apptainer sandbox could not be removed: %s", staging, error)

    async def aclose(self) -> None:
        """Let sandboxes that are just ending end."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _describe(self, handle: SandboxHandle) -> dict[str, Any]:
        # All but the environment, which may hold secrets.
        raw = _get_sandbox(handle)
        return {"workdir": raw.workdir, "shares_network": raw.shares_network}

    async def _reconnect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        """Return the handle. The environment of the spec does not travel: give it with each command."""
        raw = ApptainerSandbox(state["workdir"], {}, state["shares_network"])
        handle = SandboxHandle(sandbox_id, self.name, raw)
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(f"apptainer sandbox {sandbox_id!r} is not running")
        return handle

    def _get_shell(self, handle: SandboxHandle) -> Sequence[str]:
        return ("sh", "-c")

    def _build_start_arguments(self, instance: str, spec: SandboxSpec, options: ApptainerOptions) -> list[str]:
        arguments = ["instance", "start", "--containall"]
        if not set(WRITABLE) & {argument.partition("=")[0] for argument in options.extra_start_args}:
            arguments += ["--writable-tmpfs"]
        own = f"{_locate_staging(instance)}:{options.mount_point}"
        for bind in (own, *self._exec_config.default_binds, *options.binds):
            arguments += ["--bind", bind]
        if options.apply_resource_limits:
            arguments += ["--cpus", f"{spec.resources.cpu:g}"] if spec.resources.cpu else []
            arguments += ["--memory", f"{spec.resources.memory_mib}M"] if spec.resources.memory_mib else []
        arguments += ["--nv"] if spec.resources.gpu else []
        return [*arguments, *options.extra_start_args]

    def _build_entry(
        self, handle: SandboxHandle, command: SandboxCommand, *, interactive: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        raw = _get_sandbox(handle)
        folder = command.cwd or raw.workdir
        arguments = ["exec", "--cleanenv", *(["--pwd", folder] if folder else [])]
        arguments += ["--fakeroot"] if self._needs_fakeroot(command.user) else []
        passed = {f"{self._variables}ENV_{name}": value for name, value in {**raw.env, **command.env}.items()}
        # Otherwise the engine would expand `$` and backquotes in values.
        passed[f"{self._variables}_NO_EVAL"] = "1"
        return [
            *arguments,
            *self._exec_config.extra_exec_args,
            f"instance://{handle.sandbox_id}",
            *command.argv,
        ], passed

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
        """Make the working folder and start the entrypoint."""
        steps = [[SHELL, "-c", 'mkdir -p -- "$1"', "sandbox", spec.workdir]] if spec.workdir else []
        if spec.entrypoint is not None:
            main = [SHELL, "-c", spec.entrypoint] if isinstance(spec.entrypoint, str) else list(spec.entrypoint)
            steps.append([SHELL, "-c", RUN_ENTRYPOINT, "sandbox", *main])
        for argv in steps:
            # The working folder is not there for the command that makes it.
            cwd = "/" if argv is steps[0] and spec.workdir else None
            completed, cause = await self._run(handle, SandboxCommand(argv, CONTROL_TIMEOUT_S, cwd))
            if cause is not None or completed.return_code != 0:
                raise SandboxCreateError(f"cannot make {what}: it runs no commands\n{quote_end(completed.stderr)}")

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
        """Stop instances whose owner did not live to do it."""
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
            LOG.warning("a sandbox whose time to live is over could not be stopped: %s", task.exception())


@contextlib.contextmanager
def _env_file(env: Mapping[str, str]) -> Iterator[list[str]]:
    """Write variables for the instance's own start script to a file that only we can read."""
    if not env:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", prefix=f"{NAME_PREFIX}-env-", encoding="utf-8") as file:
        file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in env.items())
        file.flush()
        yield ["--no-eval", "--env-file", file.name]


def _locate_staging(instance: str) -> Path:
    """Return the folder on this machine that the commands of an instance find at the mount point."""
    return Path(tempfile.gettempdir(), instance)


def _build_image_reference(image: str) -> str:
    """Return a file or a reference with a scheme as it is; a bare image name is one of a container registry."""
    if "://" in image or image.endswith(".sif") or image.startswith(("/", ".")):
        return image
    return f"docker://{image}"


def _read_expiry(instance: str) -> int:
    """Return the Unix time at which an instance of ours is to end; NEVER for those of others."""
    prefix, _, rest = instance.partition(f"{NAME_PREFIX}-")
    number = rest.partition("-")[0]
    return int(number) if not prefix and number.isdigit() else NEVER


def _get_sandbox(handle: SandboxHandle) -> ApptainerSandbox:
    if not isinstance(handle.raw, ApptainerSandbox):
        raise SandboxConfigError(f"{handle.sandbox_id!r} is not a sandbox of the apptainer provider")
    return handle.raw
