# SPDX-License-Identifier: Apache-2.0
"""Sandboxes on this machine, for model-written code where there is no container engine.

They are isolated by bubblewrap where it works, else by the kernel's own rules; the log says which. Where neither works,
sandboxes are refused unless the config says `isolation: none`. Only files persist between commands: processes end with
the command that started them. There are no images, no ports and no GPUs.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import pwd
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, get_args

from nemo_gym._isolation import command_supervisor as supervisor
from nemo_gym._isolation.inside.containment import remove_folder
from nemo_gym._isolation.inside.kernel_rules import build_namespace_filter
from nemo_gym._isolation.isolation import Isolation, choose_isolation
from nemo_gym.sandbox.providers.base import (
    KILLED_RETURN_CODE,
    SandboxConfigError,
    SandboxCreateError,
    SandboxExpiredError,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxPtySpec,
    SandboxSpec,
    SandboxStatus,
    stringify_env,
)
from nemo_gym.sandbox.providers.command_provider import SHELL, CommandProvider, SandboxCommand
from nemo_gym.sandbox.providers.local.sandbox import (
    DEFAULT_WORKDIR,
    FOLDER_PREFIX,
    SANDBOX_MARK,
    STATE_FILE,
    LocalIsolation,
    LocalSandbox,
    kill_marked,
    remove_expired,
)
from nemo_gym.sandbox.providers.processes import DEFAULT_MAX_OUTPUT_BYTES, DEVNULL, Completed, run_program
from nemo_gym.sandbox.providers.terminals import TerminalSession, open_terminal

LOG = logging.getLogger(__name__)

DEFAULT_TTL_S = 24 * 3600.0
MIB = 1024 * 1024
FILTER_FD = 60
SUPERVISOR_GRACE_S = supervisor.KILL_PATIENCE_S + 20.0
"""How long a supervisor may take to kill all processes of its command; nobody else finds those that hide."""
# Bubblewrap starts a session without a terminal. Start another that takes ours, so that Ctrl-C reaches the program.
TAKE_TERMINAL = 'if [ -t 0 ] && setsid -w true 2>/dev/null; then exec setsid -c -w "$@"; fi; exec "$@"'

IsolationChoice = Literal["auto", "bubblewrap", "rlimits", "none"]


class LocalProvider(CommandProvider):
    """A folder per sandbox, and a supervised process tree per command."""

    name = "local"

    def __init__(
        self,
        *,
        isolation: IsolationChoice = "auto",
        memory_mib: int = 2048,
        max_processes: int = 256,
        max_file_mib: int = 1024,
        max_disk_mib: int = 16 * 1024,
        run_as: str = "nobody",
        read_only_paths: Sequence[str] = (),
        base_dir: str | None = None,
        bubblewrap: str = "bwrap",
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        transfer_timeout_s: float = 600.0,
    ) -> None:
        """Set the limits for all sandboxes.

        `run_as` is the user of the commands if we are root; otherwise they run as our own user. `memory_mib` limits all
        processes of a command together, and `max_disk_mib` all files of a sandbox, unless the spec's resources say
        otherwise. `read_only_paths` are folders besides /usr that commands may read.
        """
        super().__init__(max_output_bytes=max_output_bytes, transfer_timeout_s=transfer_timeout_s)
        if isolation not in get_args(IsolationChoice):
            raise SandboxConfigError(f"isolation must be one of {get_args(IsolationChoice)}, not {isolation!r}")
        self._isolation: IsolationChoice = isolation
        self._memory_mib = memory_mib
        self._max_processes = max_processes
        self._max_file_mib = max_file_mib
        self._max_disk_mib = max_disk_mib
        self._run_as = run_as
        self._read_only_paths = tuple(read_only_paths)
        self._base_dir = Path(base_dir or tempfile.gettempdir())
        self._bubblewrap = bubblewrap
        self._chosen: LocalIsolation | None = None

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Create the folders of a sandbox and check that commands run in it."""
        _refuse_unsupported(spec)
        await asyncio.to_thread(remove_expired, self._base_dir)
        sandbox = await asyncio.to_thread(self._make_folders, spec)
        handle = SandboxHandle(Path(sandbox.root).name, self.name, sandbox)
        try:
            if self._chosen is None:
                self._chosen = await self._choose_isolation(handle)
            if sandbox.sockets and self._chosen != "bubblewrap":
                raise SandboxCreateError(
                    "a local sandbox can use sockets of this machine only under bubblewrap, but its isolation is "
                    f"{self._chosen!r}\nhint: install the package `bubblewrap` and allow user namespaces"
                )
            handle = replace(handle, raw=replace(sandbox, isolation=self._chosen))
            problem = await self._find_problem(handle)
            if problem is not None:
                raise SandboxCreateError(
                    f"cannot create a local sandbox in {sandbox.root!r}: it cannot run commands: {problem}\n"
                    f"hint: can user {self._run_as!r} enter that folder? If not, set `base_dir`"
                )
            # The time to live begins when the sandbox is ready: checking it can take long on a busy machine.
            ready = replace(_get_sandbox(handle), expires_at=time.time() + (spec.ttl_s or DEFAULT_TTL_S))
            ready.save()
        except BaseException:
            # Also on cancellation: nobody would own this folder.
            await self.close(handle)
            raise
        return replace(handle, raw=ready)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return `RUNNING` until the folder is removed or the time to live is over."""
        if _get_sandbox(handle).work.is_dir() and not _has_expired(handle):
            return SandboxStatus.RUNNING
        return SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """Kill all remaining processes and remove the folders."""
        await self._close_terminals(handle)

        def end() -> None:
            while kill_marked(handle.sandbox_id):
                time.sleep(0.005)
            remove_folder(_get_sandbox(handle).root)

        await asyncio.to_thread(end)

    async def aclose(self) -> None:
        """Do nothing: the provider holds nothing between calls."""

    def _describe(self, handle: SandboxHandle) -> dict[str, Any]:
        # The rest is in that folder's state file, which only its owner can read.
        return {"root": _get_sandbox(handle).root}

    async def _reconnect(self, sandbox_id: str, state: Mapping[str, Any]) -> SandboxHandle:
        """Return the handle of a sandbox that another process on this machine created."""
        root = Path(state["root"])
        if root.name != sandbox_id or not (root / STATE_FILE).is_file():
            raise SandboxNotRunningError(f"no local sandbox {sandbox_id!r} in {str(root)!r}: it may have ended")
        return SandboxHandle(sandbox_id, self.name, LocalSandbox.load(root))

    def _translate_path(self, handle: SandboxHandle, path: str) -> str:
        return _get_sandbox(handle).translate_path(path)

    async def _run(self, handle: SandboxHandle, command: SandboxCommand) -> tuple[Completed, str | None]:
        timeout_s = await self._check_time_left(handle, command.user)
        if command.timeout_s is not None:
            timeout_s = min(timeout_s, command.timeout_s)
        settings = self._build_settings(handle, replace(command, timeout_s=timeout_s))
        with _make_memory_file(json.dumps(settings).encode()) as settings_file, _make_memory_file() as report:
            fds = (settings_file.fileno(), report.fileno())
            completed = await run_program(
                _build_supervisor_argv(fds),
                env={},
                # The supervisor enforces the deadline; this timeout is for when it hangs.
                timeout_s=timeout_s + SUPERVISOR_GRACE_S,
                grace_s=SUPERVISOR_GRACE_S,
                stdin=command.stdin or DEVNULL,
                stdout=command.stdout,
                pass_fds=fds,
                max_output_bytes=self._max_output_bytes,
            )
            report.seek(0)
            outcome_json = report.read()
        outcome: dict[str, Any] = {"return_code": KILLED_RETURN_CODE, "error_type": "killed", "survivors": 0}
        if outcome_json:
            outcome = json.loads(outcome_json)
        else:
            # The supervisor itself was killed, so find its processes by their mark.
            await asyncio.to_thread(kill_marked, handle.sandbox_id)
        if outcome["survivors"]:
            LOG.warning("cannot kill %s processes of sandbox %r", outcome["survivors"], handle.sandbox_id)
        cause = completed.ended_by or outcome["error_type"]
        if cause in (None, "killed") and outcome["return_code"] == KILLED_RETURN_CODE and _has_expired(handle):
            # Whoever creates a sandbox kills the commands of those whose time is over, perhaps before we do.
            cause = "timeout"
        return replace(completed, return_code=outcome["return_code"]), cause

    async def _check_time_left(self, handle: SandboxHandle, user: str | int | None) -> float:
        """Return how long the sandbox has left; raise if it has ended or cannot run commands as `user`."""
        if user is not None:
            raise SandboxConfigError(
                f"a local sandbox cannot run a command as user {str(user)!r}\n"
                "hint: leave `user` unset; if we are root, the provider's `run_as` sets the user of all commands"
            )
        remaining_s = _get_sandbox(handle).expires_at - time.time()
        if remaining_s <= 0:
            raise SandboxExpiredError(f"local sandbox {handle.sandbox_id!r} has ended: its time to live is over")
        if not _get_sandbox(handle).work.is_dir():
            raise SandboxNotRunningError(f"local sandbox {handle.sandbox_id!r} has ended: its folder is gone")
        return remaining_s

    def _build_settings(self, handle: SandboxHandle, command: SandboxCommand) -> dict[str, Any]:
        """Return the supervisor's settings for one command."""
        sandbox = _get_sandbox(handle)
        folder = sandbox.translate_path(command.cwd or "")
        prefix: list[str] = []
        filter_fd = None
        contained = None
        if sandbox.isolation == "rlimits":
            contained = sandbox.list_visible_paths(self._read_only_paths)
        uid, gid = counted, _ = _find_user(self._run_as)
        if sandbox.isolation == "bubblewrap":
            shared = [*self._read_only_paths, *sandbox.sockets.values()]
            become = None
            if uid is not None and gid is not None and not all(map(_is_reachable_by_all, shared)):
                become = (uid, gid)
                uid = None
                gid = None
                # Bubblewrap denies further user namespaces only below one of its own, which root does not open.
                if build_namespace_filter():
                    filter_fd = FILTER_FD
            prefix = sandbox.build_bubblewrap_prefix(self._bubblewrap, folder, self._read_only_paths, become, filter_fd)
        return {
            "argv": [*prefix, *command.argv],
            "cwd": "/" if prefix else folder,
            "env": {**sandbox.build_base_env(), **sandbox.env, **command.env, SANDBOX_MARK: handle.sandbox_id},
            "timeout_s": command.timeout_s,
            "memory_bytes": sandbox.memory_mib * MIB,
            "max_processes": self._max_processes,
            "max_file_bytes": self._max_file_mib * MIB,
            "max_disk_bytes": sandbox.disk_mib * MIB,
            "folders": [str(sandbox.work), str(sandbox.tmp)],
            "contained": contained,
            "uid": uid,
            "gid": gid,
            "counted_uid": counted,
            "filter_fd": filter_fd,
            "parent": os.getpid(),
        }

    async def _open_terminal(
        self, handle: SandboxHandle, argv: Sequence[str], spec: SandboxPtySpec, env: Mapping[str, str]
    ) -> TerminalSession:
        remaining_s = await self._check_time_left(handle, spec.user)
        command = SandboxCommand([SHELL, "-c", TAKE_TERMINAL, "sandbox", *argv], remaining_s, spec.cwd, env)
        settings = self._build_settings(handle, command)
        report = _make_memory_file()
        with contextlib.ExitStack() as on_failure, _make_memory_file(json.dumps(settings).encode()) as settings_file:
            on_failure.enter_context(report)
            fds = (settings_file.fileno(), report.fileno())
            session = await open_terminal(
                _build_supervisor_argv(fds),
                spec,
                env={},
                controlling=False,
                pass_fds=fds,
                report=report,
                grace_s=SUPERVISOR_GRACE_S,
            )
            on_failure.pop_all()
        return session

    def _make_folders(self, spec: SandboxSpec) -> LocalSandbox:
        if missing := [path for path in self._read_only_paths if not os.path.exists(path)]:
            raise SandboxCreateError(
                f"a local sandbox cannot show {', '.join(map(repr, missing))}: no such file or folder\n"
                "hint: check `read_only_paths`"
            )
        root = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=self._base_dir))
        uid, gid = _find_user(self._run_as)
        for name in ("work", "tmp"):
            (root / name).mkdir(mode=0o700)
            if uid is not None and gid is not None:
                os.chown(root / name, uid, gid)
        if uid is not None and gid is not None:
            # The commands' user may enter the folder, but not list it.
            os.chown(root, -1, gid)
            root.chmod(0o710)
        return LocalSandbox(
            root=str(root),
            isolation="rlimits",
            workdir=os.path.normpath(os.path.join("/", spec.workdir or DEFAULT_WORKDIR)),
            env=stringify_env(spec.env),
            memory_mib=spec.resources.memory_mib or self._memory_mib,
            disk_mib=(spec.resources.disk_gib or 0) * 1024 or self._max_disk_mib,
            expires_at=math.inf,
            sockets=dict(spec.provider_options.get("sockets") or {}),
            has_network=bool(spec.provider_options.get("network")),
        )

    async def _choose_isolation(self, handle: SandboxHandle) -> LocalIsolation:
        """Choose bubblewrap if it is allowed and works here, else the kernel's rules, and log the choice."""
        if self._isolation == "none":
            LOG.warning("local sandboxes are not isolated from files and network, as the config asks")
            return "none"

        async def find_problem(isolation: Isolation) -> str | None:
            # With the default working folder: failing to mount the spec's own would not mean that bubblewrap is broken.
            sandbox = replace(_get_sandbox(handle), isolation=isolation, workdir=DEFAULT_WORKDIR)
            return await self._find_problem(replace(handle, raw=sandbox))

        chosen = await choose_isolation(self._isolation, self._bubblewrap, find_problem)
        problem = chosen.without_bubblewrap
        if chosen.isolation == "bubblewrap":
            LOG.info("local sandboxes run under bubblewrap: no network, read-only system, private folders")
            return "bubblewrap"
        if chosen.isolation == "rlimits":
            LOG.warning(
                "local sandboxes run without bubblewrap, under the kernel's file and system call rules: %s", problem
            )
            return "rlimits"
        if self._isolation == "bubblewrap":
            raise SandboxCreateError(
                f"cannot create a local sandbox with bubblewrap: {problem}\n"
                "hint: install the package `bubblewrap` and allow user namespaces, or set `isolation: rlimits`"
            )
        raise SandboxCreateError(
            f"cannot create a local sandbox: {problem}; and without bubblewrap nothing can be hidden: "
            f"{chosen.without_limits}\n"
            "hint: install the package `bubblewrap`, or use the `docker` provider, or set `isolation: none` to give "
            "commands access to this machine's files and networks with the rights of their user"
        )

    async def _find_problem(self, handle: SandboxHandle) -> str | None:
        """Run a test command and return why it failed, if it did."""
        completed, cause = await self._run(handle, SandboxCommand([SHELL, "-c", ":"], 30))
        if cause is None and completed.return_code == 0:
            return None
        return cause or completed.stderr.decode(errors="replace").strip()


def _make_memory_file(content: bytes = b"") -> IO[bytes]:
    """Return an in-memory file; unlike arguments, its content does not show in the list of processes."""
    file = os.fdopen(os.memfd_create("nemo-gym-sandbox"), "w+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file


def _build_supervisor_argv(fds: Sequence[int]) -> list[str]:
    return [sys.executable, "-I", "-S", supervisor.__file__, *map(str, fds)]


def _find_user(run_as: str) -> tuple[int, int] | tuple[None, None]:
    """Return the user and group to switch to, or None to keep ours."""
    if os.geteuid() != 0 or run_as == "root":
        return None, None
    try:
        entry = pwd.getpwnam(run_as)
    except KeyError:
        raise SandboxConfigError(f"there is no user {run_as!r} for local sandboxes to run as") from None
    return entry.pw_uid, entry.pw_gid


def _is_reachable_by_all(path: str) -> bool:
    """Return whether every user may enter the folders above `path`."""
    return all(parent.stat().st_mode & 0o001 for parent in Path(path).absolute().parents)


def _refuse_unsupported(spec: SandboxSpec) -> None:
    if not sys.platform.startswith("linux"):
        raise SandboxCreateError("local sandboxes need Linux\nhint: use the `docker` provider")
    missing = [name for name, wanted in (("ports", spec.ports), ("gpu", spec.resources.gpu)) if wanted]
    if missing:
        raise SandboxCreateError(
            f"a local sandbox has no {' and no '.join(missing)}\nhint: use the `docker` provider for this spec"
        )
    unused = [name for name, given in (("image", spec.image), ("entrypoint", spec.entrypoint)) if given]
    if unused:
        LOG.info("a local sandbox ignores %s: commands use this machine's programs", " and ".join(unused))


def _has_expired(handle: SandboxHandle) -> bool:
    return time.time() >= _get_sandbox(handle).expires_at


def _get_sandbox(handle: SandboxHandle) -> LocalSandbox:
    if not isinstance(handle.raw, LocalSandbox):
        raise SandboxConfigError(f"{handle.sandbox_id!r} is not a sandbox of the local provider")
    return handle.raw
