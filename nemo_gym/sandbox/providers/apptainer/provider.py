# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Apptainer instances, through the `apptainer` program (or `singularity`): no root, no daemon.

An instance carries its expiry in its name: `apptainer instance list` finds what is there, and making a sandbox stops
those whose time is over. Processes share the machine's network unless `network` says otherwise, and a command cannot
change its user.
"""

import asyncio
import contextlib
import json
import logging
import os
import pwd
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from nemo_gym.sandbox.providers.base import (
    SandboxConfigError,
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
    EngineProvider,
    override,
    tail,
)
from nemo_gym.sandbox.providers.processes import DEFAULT_MAX_OUTPUT_BYTES, Completed

LOG = logging.getLogger(__name__)

NAME_PREFIX = "nemo-gym"
NEVER = 0
GONE = ("no instance found", "no instances found", "instance not found")
RUN_ENTRYPOINT = 'nohup "$@" >/dev/null 2>&1 </dev/null &'


@dataclass(frozen=True)
class ApptainerCreateConfig:
    """How instances are made; `SandboxSpec.provider_options` overrides it for one sandbox."""

    network: str | None = None
    """Network to join, e.g. "none"; None shares the machine's network. Needs rights that not every site gives."""
    writable_tmpfs: bool = True
    """Let commands write anywhere; what they write is kept in memory until the sandbox ends."""
    fakeroot: bool = False
    """Be root inside; needs a user mapping (/etc/subuid)."""
    binds: Sequence[str] = ()
    """Bind mounts, as `host:container[:ro]`."""
    extra_args: Sequence[str] = ()
    """Further arguments of `apptainer instance start`, before the image."""


@dataclass(frozen=True)
class ApptainerSandbox:
    """What we must know about an instance to run commands in it."""

    workdir: str | None
    env: Mapping[str, str]
    fakeroot: bool
    shares_network: bool


class ApptainerProvider(EngineProvider):
    """An instance per sandbox."""

    name = "apptainer"

    def __init__(
        self,
        create: ApptainerCreateConfig | Mapping[str, Any] | None = None,
        *,
        executable: str = "apptainer",
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        transfer_timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            executable,
            "install Apptainer (apptainer.org/docs), or set `executable: singularity` if you have that",
            max_output_bytes=max_output_bytes,
            transfer_timeout_s=transfer_timeout_s,
        )
        given = create if create is not None else {}
        self._create = override(ApptainerCreateConfig(), given, self.name) if isinstance(given, Mapping) else given
        # Variables with this prefix reach the container although its environment is otherwise clean, and no value
        # shows in the list of processes.
        self._env_prefix = "SINGULARITYENV_" if Path(executable).name == "singularity" else "APPTAINERENV_"
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start an instance and wait until it takes commands."""
        if not spec.image:
            raise SandboxCreateError("an apptainer sandbox needs an image\nhint: set `image` of the sandbox spec")
        config = override(self._create, spec.provider_options, self.name)
        expires_at = int(time.time() + spec.ttl_s) + 1 if spec.ttl_s else NEVER
        raw = ApptainerSandbox(spec.workdir, dict(spec.env), config.fakeroot, config.network is None)
        handle = SandboxHandle(f"{NAME_PREFIX}-{expires_at}-{uuid4().hex}", self.name, raw)
        what = f"an apptainer sandbox from image {spec.image!r}"
        arguments = _start_arguments(handle.sandbox_id, spec, config)
        try:
            await self._start(arguments, {}, what, spec.ready_timeout_s or DEFAULT_READY_TIMEOUT_S)
            await self._prepare(handle, spec, what)
            await self._place_files(handle, spec)
        except BaseException:
            # Whatever stopped us, cancellation included: the instance may be there although nobody will own it.
            with contextlib.suppress(OSError, SandboxError):
                await self.close(handle)
            raise
        self._end_after(handle, spec.ttl_s)
        await self._stop_expired()
        return handle

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running if the engine lists the instance."""
        return SandboxStatus.RUNNING if handle.sandbox_id in await self._instances() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """The machine's own port, which the instance shares."""
        if not _raw(handle).shares_network:
            raise SandboxError(
                f"sandbox {handle.sandbox_id!r} has a network of its own, so port {port} cannot be reached from here\n"
                "hint: leave `network` unset, or publish the port with `extra_args`"
            )
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance and all that runs in it."""
        timer = self._timers.pop(handle.sandbox_id, None)
        if timer is not None:
            timer.cancel()
        # Killed at once: what runs inside has nothing to say in how long this takes.
        stopped = await self._client(["instance", "stop", "--signal", "SIGKILL", handle.sandbox_id])
        if stopped.return_code != 0 and not any(phrase in tail(stopped.stderr).lower() for phrase in GONE):
            raise SandboxError(f"cannot stop sandbox {handle.sandbox_id!r}: {tail(stopped.stderr)}")

    async def aclose(self) -> None:
        """Let sandboxes that are just ending end; timers of others are dropped, their names still carry the expiry."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def dump(self, handle: SandboxHandle) -> dict[str, Any]:
        """All but the environment, which may hold secrets."""
        raw = _raw(handle)
        return {"workdir": raw.workdir, "fakeroot": raw.fakeroot, "shares_network": raw.shares_network}

    async def connect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        """Take up a running instance. The environment of its spec does not travel: give it with each command."""
        raw = ApptainerSandbox(state["workdir"], {}, state["fakeroot"], state["shares_network"])
        handle = SandboxHandle(sandbox_id, self.name, raw)
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(f"apptainer sandbox {sandbox_id!r} is not running")
        return handle

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
        raw = _raw(handle)
        _check_user(user, raw)
        folder = cwd or raw.workdir
        arguments = ["exec", "--cleanenv", *(["--pwd", folder] if folder else [])]
        passed = {f"{self._env_prefix}{name}": value for name, value in {**raw.env, **env}.items()}
        return [*arguments, f"instance://{handle.sandbox_id}", *argv], passed

    async def _prepare(self, handle: SandboxHandle, spec: SandboxSpec, what: str) -> None:
        """Make the working folder, start the entrypoint; also shows that commands run."""
        argv = [SHELL, "-c", 'mkdir -p -- "$1"', "sandbox", spec.workdir or "/tmp"]
        completed, cause = await self._run(handle, argv, cwd="/", timeout_s=CONTROL_TIMEOUT_S)
        if completed.return_code == 0 and cause is None and spec.entrypoint is not None:
            main = [SHELL, "-c", spec.entrypoint] if isinstance(spec.entrypoint, str) else list(spec.entrypoint)
            argv = [SHELL, "-c", RUN_ENTRYPOINT, "sandbox", *main]
            completed, cause = await self._run(handle, argv, timeout_s=CONTROL_TIMEOUT_S)
        if cause is not None or completed.return_code != 0:
            raise SandboxCreateError(f"cannot make {what}: it runs no commands\n{tail(completed.stderr)}")

    async def _cause(self, handle: SandboxHandle, completed: Completed) -> str | None:
        reason = tail(completed.stderr)
        suspect = completed.return_code != 0 and any(phrase in reason.lower() for phrase in GONE)
        if suspect and await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxNotRunningError(
                f"apptainer sandbox {handle.sandbox_id!r} is not running: {reason}\nhint: its time to live may be over"
            )
        return None

    async def _instances(self) -> set[str]:
        listed = await self._client(["instance", "list", "--json"])
        if listed.return_code != 0:
            raise SandboxError(f"cannot list apptainer instances: {tail(listed.stderr)}")
        return {entry["instance"] for entry in json.loads(listed.stdout or b"{}").get("instances") or ()}

    async def _stop_expired(self) -> None:
        """Stop instances whose owner did not live to do it."""
        with contextlib.suppress(SandboxError):
            for name in await self._instances():
                if _expiry(name) != NEVER and _expiry(name) < time.time():
                    LOG.warning("stopping apptainer sandbox %r: its time to live is over", name)
                    await self.close(SandboxHandle(name, self.name))

    def _end_after(self, handle: SandboxHandle, ttl_s: float | None) -> None:
        def end() -> None:
            task = asyncio.ensure_future(self.close(handle))
            self._ending.add(task)
            task.add_done_callback(self._ended)

        if ttl_s:
            self._timers[handle.sandbox_id] = asyncio.get_running_loop().call_later(ttl_s, end)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.warning("a sandbox whose time to live is over could not be stopped: %s", task.exception())


def _start_arguments(instance: str, spec: SandboxSpec, config: ApptainerCreateConfig) -> list[str]:
    arguments = ["instance", "start", "--containall"]
    arguments += ["--writable-tmpfs"] if config.writable_tmpfs else []
    arguments += ["--fakeroot"] if config.fakeroot else []
    arguments += ["--net", "--network", config.network] if config.network else []
    arguments += ["--cpus", f"{spec.resources.cpu:g}"] if spec.resources.cpu else []
    arguments += ["--memory", f"{spec.resources.memory_mib}M"] if spec.resources.memory_mib else []
    arguments += ["--nv"] if spec.resources.gpu else []
    for bind in config.binds:
        arguments += ["--bind", bind]
    return [*arguments, *config.extra_args, _image_reference(spec.image or ""), instance]


def _image_reference(image: str) -> str:
    """A file or a reference with a scheme as it is; a bare image name is one of a container registry."""
    if "://" in image or image.endswith(".sif") or image.startswith(("/", ".")):
        return image
    return f"docker://{image}"


def _expiry(instance: str) -> int:
    """Unix time at which an instance of ours is to end; NEVER for those of others."""
    prefix, _, rest = instance.partition(f"{NAME_PREFIX}-")
    number = rest.partition("-")[0]
    return int(number) if not prefix and number.isdigit() else NEVER


def _check_user(user: str | int | None, raw: ApptainerSandbox) -> None:
    if user is None:
        return
    own = {"0", "root"} if raw.fakeroot else {str(os.getuid())}
    with contextlib.suppress(KeyError):
        own.add("root" if raw.fakeroot else pwd.getpwuid(os.getuid()).pw_name)
    if str(user) not in own:
        raise SandboxConfigError(
            f"an apptainer sandbox cannot run a command as user {str(user)!r}, only as {' / '.join(sorted(own))}\n"
            "hint: leave `user` unset, or make sandboxes with `create: {fakeroot: true}` to be root inside"
        )


def _raw(handle: SandboxHandle) -> ApptainerSandbox:
    if not isinstance(handle.raw, ApptainerSandbox):
        raise SandboxConfigError(f"{handle.sandbox_id!r} is not a sandbox of the apptainer provider")
    return handle.raw
