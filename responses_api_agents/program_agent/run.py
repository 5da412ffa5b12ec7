# SPDX-License-Identifier: Apache-2.0
"""One run of a program: its sandbox, its files and variables, how it ended, and what it left behind."""

import asyncio
import contextlib
import fnmatch
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any

from nemo_gym.adapters.recorded_calls import RecordedCall
from nemo_gym.programs import InstalledProgram
from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxExecResult, SandboxSpec
from responses_api_agents.program_agent.gateway import CallState, RolloutGateway
from responses_api_agents.program_agent.program_config import ProgramAgentConfig
from responses_api_agents.program_agent.rollout_folder import RolloutFolder
from responses_api_agents.program_agent.workspace import (
    CopyLimits,
    WorkspaceChange,
    collect_change,
    copy_workspace,
    is_regular,
    matches,
    show_name,
)

WORKSPACE = "/workspace"
HOME = "/tmp/home"
SOCKET = "/tmp/.gateway.sock"
PORT = 4000
_RELAY = Path(__file__).parent / "relay.py"
_PYTHON = os.path.realpath(sys.executable)
_RELAY_INSIDE = "/tmp/.relay.py"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_TASK_FILE = "task.txt"
_MAX_ARGUMENT_BYTES = 32 * 4096  # Linux's limit for one argument, with pages of 4 KiB
_PRINTED_CHARACTERS = 4000
_ARTIFACT_CHARACTERS = 1_000_000
_TTL_MARGIN_S = 600.0
_BUDGET_GRACE_S = 5.0
_NOT_RUN_CODES = (126, 127)
_ENDED_BY_MODEL = ("program_failed", "time_limit")
PROGRAM_FAULTS = (
    "program_failed",
    "malformed_call",
    "time_limit",
    "memory_limit",
    "process_limit",
    "disk_limit",
    "output_limit",
    "out_of_budget",
)
"""What a program does wrong itself. It counts: the rollout is scored."""
_LIMIT_FAILURES = {
    "timeout": ("time_limit", "it was still running after {config.time_limit_s:g} s", "raise `time_limit_s`"),
    "oom": ("memory_limit", "its processes needed more than {config.memory_mib} MiB", "raise `memory_mib`"),
    "process_limit": ("process_limit", "it had more than {config.max_processes} processes", "raise `max_processes`"),
    "disk_limit": ("disk_limit", "it wrote more than {config.max_disk_mib} MiB", "raise `max_disk_mib`"),
    "output_limit": (
        "output_limit",
        "it printed far more than {config.max_output_bytes} bytes",
        "raise `max_output_bytes`",
    ),
}


@dataclass(frozen=True)
class ProgramFailure:
    """Why a program's rollout has no reward."""

    name: str
    """`program_missing`, `install_failed`, `program_failed`, `time_limit`, `out_of_budget`, `model_endpoint`, …"""
    message: str


@dataclass(frozen=True)
class ProgramSettings:
    """How to run a program for a task."""

    config: ProgramAgentConfig
    installed: InstalledProgram
    command: tuple[str, ...]
    files: Mapping[str, str]

    @classmethod
    def for_task(cls, config: ProgramAgentConfig, installed: InstalledProgram, *, has_tools: bool) -> "ProgramSettings":
        """Return the settings for a task with or without tools."""
        extra = config.args_with_tools if has_tools else []
        files = {**config.files, **config.files_with_tools} if has_tools else config.files
        command = config.command
        end = command.index("--") if "--" in command else len(command)
        return cls(config, installed, (*command[:end], *extra, *command[end:]), files)

    def build_provider(self, base_dir: Path) -> dict[str, Any]:
        """Return the provider config of its sandbox, which is created in `base_dir`."""
        config = self.config
        visible = [*config.read_only_paths, *map(str, self.installed.folders), sys.base_prefix]
        return {
            "local": {
                "base_dir": str(base_dir),
                "isolation": "none" if config.isolation == "none" else "bubblewrap",
                "run_as": "root" if config.isolation == "none" else "nobody",
                "memory_mib": config.memory_mib,
                "max_processes": config.max_processes,
                "max_disk_mib": config.max_disk_mib,
                "max_output_bytes": config.max_output_bytes,
                "read_only_paths": [path for path in dict.fromkeys(visible) if not Path(path).is_relative_to("/usr")],
            }
        }


@dataclass
class ProgramOutcome:
    """How a run ended, and what it left."""

    failure: ProgramFailure | None = None
    """Why the program did not end well, if so."""
    exit_code: int | None = None
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    change: WorkspaceChange = field(default_factory=WorkspaceChange)
    artifacts: dict[str, str] = field(default_factory=dict)
    last_call: CallState = "answered"
    """What became of the model call that was begun last."""

    def describe(self) -> dict[str, Any]:
        """Return the `program` field of the row."""
        return {
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "stdout": self.stdout[-_PRINTED_CHARACTERS:],
            "stderr": self.stderr[-_PRINTED_CHARACTERS:],
        }


async def run_program(
    program: ProgramSettings, gateway: RolloutGateway, before: Path, folder: RolloutFolder, *, prompt: str, model: str
) -> ProgramOutcome:
    """Run the program in a copy of the workspace `before`."""
    config = program.config
    outcome = ProgramOutcome()
    uses_socket = config.network == "model" and config.isolation != "none"
    socket = folder.private / "gateway.sock"
    options = {"sockets": {SOCKET: str(socket)}} if uses_socket else {"network": True}
    spec = SandboxSpec(workdir=WORKSPACE, ttl_s=config.time_limit_s + _TTL_MARGIN_S, provider_options=options)
    try:
        async with (
            gateway.listen(path=socket if uses_socket else None) as port,
            AsyncSandbox(program.build_provider(folder.sandboxes), spec) as sandbox,
        ):
            await sandbox.start()
            values = _Placeholders(sandbox, port if port else PORT, prompt, model)
            home = folder.private / "home"
            await asyncio.to_thread(_write_home, home, program, values)
            for source, target in ((before, values.workspace), (home, values.home), (_RELAY, _RELAY_INSIDE)):
                await sandbox.upload(source, target)
            command = [values.fill(argument) for argument in program.command]
            if any(len(argument.encode()) >= _MAX_ARGUMENT_BYTES for argument in command):
                outcome.failure = ProgramFailure(
                    "prompt_too_long",
                    f"the prompt has {len(prompt.encode())} bytes, but an argument must have fewer than "
                    f"{_MAX_ARGUMENT_BYTES}.\nhint: let the program read it from `$task_file`",
                )
                return outcome
            if uses_socket:
                command = [_PYTHON, "-I", "-S", _RELAY_INSIDE, str(PORT), SOCKET, *command]
            started = time.monotonic()
            result = await _run_within_budget(sandbox, program, gateway, command, values)
            outcome.seconds = time.monotonic() - started
            outcome.last_call = gateway.last_call
            _record_end(outcome, result, program, gateway)
            await asyncio.to_thread(_collect, outcome, config, before, folder.private / "after", sandbox.handle.raw)
    except SandboxError as error:
        outcome.failure = outcome.failure or ProgramFailure("sandbox_failed", str(error))
    return outcome


class _Placeholders:
    """The values of the `$placeholders` in commands, variables and files."""

    def __init__(self, sandbox: AsyncSandbox, port: int, prompt: str, model: str) -> None:
        raw = sandbox.handle.raw
        # Without bubblewrap, a program must be given the real paths.
        self.workspace = raw.translate_path(WORKSPACE)
        self.home = raw.translate_path(HOME)
        root_url = f"http://127.0.0.1:{port}"
        self._values = {
            "task": prompt,
            "task_file": f"{self.home}/{_TASK_FILE}",
            "model": model,
            "base_url": f"{root_url}/v1",
            "root_url": root_url,
            "mcp_url": f"{root_url}/mcp",
            "api_key": "none",
            "workspace": self.workspace,
            "home": self.home,
        }

    def fill(self, text: str) -> str:
        """Return `text` with the values filled in; unknown names are left as they are."""
        return Template(text).safe_substitute(self._values)


def _write_home(home: Path, program: ProgramSettings, values: _Placeholders) -> None:
    home.mkdir()
    (home / _TASK_FILE).write_text(values.fill("$task"), encoding="utf-8")
    for name, content in program.files.items():
        path = Path(values.fill(name))
        if not path.is_relative_to(values.home):
            raise SandboxError(
                f"the program's file {name!r} is not below its home folder\nhint: start its path with `$home/`"
            )
        target = home / path.relative_to(values.home)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(values.fill(content), encoding="utf-8")


async def _run_within_budget(
    sandbox: AsyncSandbox,
    program: ProgramSettings,
    gateway: RolloutGateway,
    command: Sequence[str],
    values: _Placeholders,
) -> SandboxExecResult | None:
    """Run the command; return None if it was ended because it exceeded its budget or its model is down."""
    config = program.config
    path = ":".join([*map(str, program.installed.script_folders), _SYSTEM_PATH])
    env = {
        "PATH": path,
        "HOME": values.home,
        "XDG_CONFIG_HOME": f"{values.home}/.config",
        "XDG_DATA_HOME": f"{values.home}/.local/share",
        "XDG_STATE_HOME": f"{values.home}/.local/state",
        "XDG_CACHE_HOME": f"{values.home}/.cache",
        **{name: values.fill(value) for name, value in config.env.items()},
    }
    running = asyncio.create_task(sandbox.exec(command, env=env, timeout_s=config.time_limit_s))
    events = (gateway.budget.exceeded, gateway.budget.model_is_down)
    stops = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait({running, *stops}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and gateway.budget.exceeded.is_set():
            await asyncio.wait({running}, timeout=_BUDGET_GRACE_S)  # it may end on its own when refused
        return running.result() if running.done() else None
    finally:
        for task in (running, *stops):
            task.cancel()
        await asyncio.gather(running, *stops, return_exceptions=True)


def _record_end(
    outcome: ProgramOutcome, result: SandboxExecResult | None, program: ProgramSettings, gateway: RolloutGateway
) -> None:
    """Record how the program ended, and why that is a failure, if so."""
    config = program.config
    name = program.command[0]
    if result is not None:
        outcome.exit_code = result.return_code
        outcome.stdout = result.stdout or ""
        outcome.stderr = result.stderr or ""
    if gateway.budget.exceeded.is_set():
        budget = gateway.budget
        outcome.failure = ProgramFailure(
            "out_of_budget",
            f"{name!r} exceeded its budget: {budget.calls} calls were made, {budget.tokens} tokens used.\n"
            "hint: raise `max_model_calls` or `max_tokens` of the agent",
        )
    elif result is not None and result.error_type is not None:
        if result.error_type in _LIMIT_FAILURES:
            kind, text, hint = _LIMIT_FAILURES[result.error_type]
            text = text.format(config=config)
        else:
            kind = "sandbox_failed"
            text = f"the sandbox could not run it: {outcome.stderr}"
            hint = "see the log"
        outcome.failure = ProgramFailure(kind, f"{name!r} was ended: {text}.\nhint: {hint}")
    elif result is not None and result.return_code in _NOT_RUN_CODES and not gateway.budget.calls:
        outcome.failure = ProgramFailure(
            "program_missing",
            f"{name!r} cannot be run in the sandbox: {outcome.stderr.strip()[-500:]}\n"
            "hint: add its package to `install`, or the folder it is in to `read_only_paths`",
        )
    elif result is not None and result.return_code != 0:
        output = (outcome.stderr.strip() or outcome.stdout.strip())[-1000:]
        outcome.failure = ProgramFailure(
            "program_failed", f"{name!r} ended with exit code {result.return_code}: {output}"
        )


def _collect(outcome: ProgramOutcome, config: ProgramAgentConfig, before: Path, after: Path, raw: Any) -> None:
    """Collect what the program left, from its real folders: all of its processes have ended."""
    give_up_at_s = time.monotonic() + config.collect_timeout_s
    limits = CopyLimits(
        config.max_workspace_files, config.max_workspace_depth, config.max_disk_mib * 2**20, give_up_at_s
    )
    left_out = copy_workspace(raw.work, after, limits)
    outcome.change = collect_change(
        before,
        after,
        leave_out=config.leave_out,
        patterns=config.collect,
        max_bytes=config.max_collected_bytes,
        give_up_at_s=give_up_at_s,
    )
    left_out = [name for name in left_out if not matches(name, config.leave_out)]
    outcome.change.left_out = sorted({*outcome.change.left_out, *left_out})
    outcome.change.deleted = [name for name in outcome.change.deleted if not os.path.lexists(raw.work / name)]
    if config.artifacts:
        outcome.artifacts = _read_artifacts(raw.tmp / Path(HOME).name, config.artifacts)


def _read_artifacts(home: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Return the tails of the files that match a pattern. Links are not followed: they may lead anywhere."""
    # `**/` also matches no folder at all.
    wanted = [*patterns, *(pattern.replace("**/", "") for pattern in patterns)]
    found = dict[str, str]()
    room = _ARTIFACT_CHARACTERS
    for place, folders, names in os.walk(home) if not home.is_symlink() else ():
        folders.sort()
        for path in (Path(place, name) for name in sorted(names)):
            label = path.relative_to(home).as_posix()
            if room > 0 and any(fnmatch.fnmatch(label, pattern) for pattern in wanted) and is_regular(path):
                with contextlib.suppress(OSError), path.open("rb") as file:
                    file.seek(max(path.stat().st_size - room, 0))
                    shown = show_name(PurePosixPath(label))
                    found[shown] = file.read(room).decode("utf-8", errors="replace")
                    room -= len(found[shown])
    return found


def _is_late(outcome: ProgramOutcome) -> bool:
    return outcome.failure is not None and outcome.failure.name == "time_limit"


def find_failure(
    outcome: ProgramOutcome, calls: Sequence[RecordedCall], traces: Sequence[Mapping[str, Any]]
) -> ProgramFailure | None:
    """Return what went wrong; None if nothing did.

    A failing model is not the program's fault, however the program ended: some even exit with 0.
    """
    last_error = traces[-1]["error"] if traces else None
    # A call that was under way when the time was up is the model's; one that the program left is its own.
    is_own = outcome.last_call in ("malformed", "abandoned") or (outcome.last_call == "open" and not _is_late(outcome))
    if last_error is not None and calls and is_own:
        return outcome.failure or (
            ProgramFailure("malformed_call", f"the last of {len(traces)} model calls was not valid: {last_error}")
            if outcome.last_call == "malformed"
            else None
        )
    if last_error is not None and (outcome.failure is None or outcome.failure.name in _ENDED_BY_MODEL):
        return ProgramFailure(
            "model_endpoint",
            f"the model did not answer the last of {len(traces)} calls: {last_error}\n"
            "hint: check the model server's log and its endpoint; the program is not to blame",
        )
    if outcome.failure is not None:
        return outcome.failure
    if calls:
        return None
    return ProgramFailure(
        "no_model_call",
        "the program ended without a model call.\n"
        f"it printed: {(outcome.stdout.strip() or outcome.stderr.strip())[-500:] or 'nothing'}\n"
        "hint: its config must point it to `$base_url` or `$root_url`",
    )
