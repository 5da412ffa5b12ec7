# SPDX-License-Identifier: Apache-2.0
"""One run of a program: its sandbox, its files and variables, how it ended, and what it has left behind."""

import asyncio
import contextlib
import fnmatch
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from nemo_gym.adapters.recorded_calls import RecordedCall
from nemo_gym.programs import InstalledProgram
from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxExecResult, SandboxSpec
from responses_api_agents.program_agent.gateway import RolloutGateway
from responses_api_agents.program_agent.program_config import ProgramAgentConfig
from responses_api_agents.program_agent.rollout_folder import RolloutFolder
from responses_api_agents.program_agent.workspace import (
    WorkspaceChange,
    collect_change,
    copy_workspace,
    is_regular,
    matches,
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
_MOST_BYTES_OF_A_WORD = 32 * 4096  # of Linux, on every machine with pages of 4 KiB
_PRINTED_CHARACTERS = 4000
_ARTIFACT_CHARACTERS = 1_000_000
_MARGIN_S = 600.0
_BUDGET_GRACE_S = 5.0
_NOT_FOUND = (126, 127)
_ENDINGS_OF_PROGRAMS = ("program_failed", "time_limit")
_CAUSES = {
    "timeout": ("time_limit", "it was still running after {time:g} s", "`time_limit_s` allows more"),
    "oom": ("memory_limit", "its processes needed more than {memory} MiB", "`memory_mib` allows more"),
    "process_limit": ("process_limit", "it had more than {processes} processes", "`max_processes` allows more"),
    "disk_limit": ("disk_limit", "it wrote more than {disk} MiB", "`max_disk_mib` allows more"),
    "output_limit": ("output_limit", "it printed far more than {output} bytes", "`max_output_bytes` allows more"),
}


@dataclass(frozen=True)
class ProgramFailure:
    """Why a rollout of a program has no reward."""

    name: str
    """`program_missing`, `install_failed`, `program_failed`, `time_limit`, `out_of_budget`, `model_endpoint`, …"""
    message: str


@dataclass(frozen=True)
class ProgramSettings:
    """How a program is run for a task."""

    config: ProgramAgentConfig
    installed: InstalledProgram
    command: tuple[str, ...]
    files: Mapping[str, str]

    @classmethod
    def of(cls, config: ProgramAgentConfig, installed: InstalledProgram, *, has_tools: bool) -> "ProgramSettings":
        """Return the settings of a task with tools, or of one without."""
        more = config.args_with_tools if has_tools else []
        files = {**config.files, **config.files_with_tools} if has_tools else config.files
        words = config.command
        end = words.index("--") if "--" in words else len(words)
        return cls(config, installed, (*words[:end], *more, *words[end:]), files)

    def build_provider(self, base_dir: Path) -> dict[str, Any]:
        """Return the provider of its sandbox, which is made in `base_dir`."""
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
class PlayedProgram:
    """What came of a run."""

    failure: ProgramFailure | None = None
    """Why the program did not run to its end."""
    exit_code: int | None = None
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    change: WorkspaceChange = field(default_factory=WorkspaceChange)
    artifacts: dict[str, str] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return what the row keeps of it."""
        return {
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "stdout": self.stdout[-_PRINTED_CHARACTERS:],
            "stderr": self.stderr[-_PRINTED_CHARACTERS:],
        }


async def run_program(
    program: ProgramSettings, gateway: RolloutGateway, before: Path, folder: RolloutFolder, *, prompt: str, model: str
) -> PlayedProgram:
    """Run the program on a copy of the workspace `before`."""
    config, played = program.config, PlayedProgram()
    is_lent = config.network == "model" and config.isolation != "none"
    socket = folder.private / "gateway.sock"
    options = {"sockets": {SOCKET: str(socket)}} if is_lent else {"network": True}
    spec = SandboxSpec(workdir=WORKSPACE, ttl_s=config.time_limit_s + _MARGIN_S, provider_options=options)
    try:
        async with (
            gateway.listen(path=socket if is_lent else None) as port,
            AsyncSandbox(program.build_provider(folder.sandboxes), spec) as box,
        ):
            await box.start()
            words = _Words(box, port if port else PORT, prompt, model)
            await _write_files(box, program, words, before, folder.private)
            command = [words.fill(word) for word in program.command]
            if any(len(word.encode()) >= _MOST_BYTES_OF_A_WORD for word in command):
                played.failure = ProgramFailure(
                    "prompt_too_long",
                    f"the prompt has {len(prompt.encode())} bytes, and a word of a command has room for fewer than "
                    f"{_MOST_BYTES_OF_A_WORD}.\nhint: let the program read it from `$task_file`",
                )
                return played
            if is_lent:
                command = [_PYTHON, "-I", "-S", _RELAY_INSIDE, str(PORT), SOCKET, *command]
            started = time.monotonic()
            result = await _run_within_budget(box, program, gateway, command, words)
            played.seconds = time.monotonic() - started
            _note_ending(played, result, program, gateway, words)
            await asyncio.to_thread(_collect, played, config, before, folder.private / "after", box.handle.raw)
    except SandboxError as error:
        played.failure = played.failure or ProgramFailure("sandbox_failed", str(error))
    return played


class _Words:
    """What `$names` stand for in commands, variables and files."""

    def __init__(self, box: AsyncSandbox, port: int, prompt: str, model: str) -> None:
        raw = box.handle.raw
        # Without bubblewrap there is no other view of the files: a program must be told where they really are.
        self.workspace, self.home = raw.translate_path(WORKSPACE), raw.translate_path(HOME)
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
        """Return `text` with the values in place; an unknown name stays as it is."""
        return Template(text).safe_substitute(self._values)


async def _write_files(box: AsyncSandbox, program: ProgramSettings, words: _Words, before: Path, folder: Path) -> None:
    """Upload the workspace, the files of the program and the relay."""
    await box.upload(before, words.workspace)
    home = folder / "home"
    await asyncio.to_thread(_write_home, home, program, words)
    await box.upload(home, words.home)
    await box.upload(_RELAY, _RELAY_INSIDE)


def _write_home(home: Path, program: ProgramSettings, words: _Words) -> None:
    home.mkdir()
    (home / _TASK_FILE).write_text(words.fill("$task"), encoding="utf-8")
    for name, content in program.files.items():
        path = Path(words.fill(name))
        if not path.is_relative_to(words.home):
            raise SandboxError(
                f"the program's file {name!r} is not below its home folder\nhint: begin it with `$home/`"
            )
        target = home / path.relative_to(words.home)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(words.fill(content), encoding="utf-8")


async def _run_within_budget(
    box: AsyncSandbox, program: ProgramSettings, gateway: RolloutGateway, command: Sequence[str], words: _Words
) -> SandboxExecResult | None:
    """Run the command; None if it was ended because it asked for more than it may, or asked a model that is down."""
    config = program.config
    path = ":".join([*map(str, program.installed.script_folders), _SYSTEM_PATH])
    env = {
        "PATH": path,
        "HOME": words.home,
        "XDG_CONFIG_HOME": f"{words.home}/.config",
        "XDG_DATA_HOME": f"{words.home}/.local/share",
        "XDG_STATE_HOME": f"{words.home}/.local/state",
        "XDG_CACHE_HOME": f"{words.home}/.cache",
        **{name: words.fill(value) for name, value in config.env.items()},
    }
    running = asyncio.create_task(box.exec(command, env=env, timeout_s=config.time_limit_s))
    events = (gateway.budget.exceeded, gateway.budget.model_is_down)
    reasons = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait({running, *reasons}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and gateway.budget.exceeded.is_set():
            await asyncio.wait({running}, timeout=_BUDGET_GRACE_S)  # it may end by itself when it is refused
        return running.result() if running.done() else None
    finally:
        for task in (running, *reasons):
            task.cancel()
        await asyncio.gather(running, *reasons, return_exceptions=True)


def _note_ending(
    played: PlayedProgram,
    result: SandboxExecResult | None,
    program: ProgramSettings,
    gateway: RolloutGateway,
    words: _Words,
) -> None:
    """Note how the program ended, and why that was too early, if so."""
    config, name = program.config, program.command[0]
    if result is not None:
        played.exit_code, played.stdout, played.stderr = result.return_code, result.stdout or "", result.stderr or ""
    if gateway.budget.exceeded.is_set():
        budget = gateway.budget
        played.failure = ProgramFailure(
            "out_of_budget",
            f"{name!r} wanted more of its model than it may have: {budget.calls} calls were made, {budget.tokens} "
            "tokens used.\nhint: `max_model_calls` and `max_tokens` of the agent allow more",
        )
    elif result is not None and result.error_type is not None:
        limits = {
            "time": config.time_limit_s,
            "memory": config.memory_mib,
            "processes": config.max_processes,
            "disk": config.max_disk_mib,
            "output": config.max_output_bytes,
        }
        named, text, hint = _CAUSES.get(
            result.error_type, ("sandbox_failed", f"the sandbox could not run it: {played.stderr}", "see the log")
        )
        played.failure = ProgramFailure(named, f"{name!r} was ended: {text.format(**limits)}.\nhint: {hint}")
    elif result is not None and result.return_code in _NOT_FOUND and not gateway.budget.calls:
        played.failure = ProgramFailure(
            "program_missing",
            f"{name!r} cannot be run in the sandbox: {played.stderr.strip()[-500:]}\n"
            "hint: name its package under `install`, or the folder it lies in under `read_only_paths`",
        )
    elif result is not None and result.return_code != 0:
        said = (played.stderr.strip() or played.stdout.strip())[-1000:]
        played.failure = ProgramFailure("program_failed", f"{name!r} ended with exit code {result.return_code}: {said}")


def _collect(played: PlayedProgram, config: ProgramAgentConfig, before: Path, after: Path, box: Any) -> None:
    """Take what the program has left, from where it really lies: all of its processes have ended."""
    left_out = copy_workspace(box.work, after, config.max_disk_mib * 2**20)
    played.change = collect_change(
        before, after, leave_out=config.leave_out, patterns=config.collect, max_bytes=config.max_collected_bytes
    )
    left_out = [name for name in left_out if not matches(name, config.leave_out)]
    played.change.left_out = sorted({*played.change.left_out, *left_out})
    played.change.deleted = [name for name in played.change.deleted if name not in left_out]
    if config.artifacts:
        played.artifacts = _read_artifacts(box.tmp / Path(HOME).name, config.artifacts)


def _read_artifacts(home: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Return the ends of the files that fit a pattern. No link is followed: it may lead anywhere on this machine."""
    # `**/` stands for no folder, too.
    wanted = [*patterns, *(pattern.replace("**/", "") for pattern in patterns)]
    found, room = dict[str, str](), _ARTIFACT_CHARACTERS
    for place, folders, names in os.walk(home) if not home.is_symlink() else ():
        folders.sort()
        for path in (Path(place, name) for name in sorted(names)):
            label = path.relative_to(home).as_posix()
            if room > 0 and any(fnmatch.fnmatch(label, pattern) for pattern in wanted) and is_regular(path):
                with contextlib.suppress(OSError), path.open("rb") as file:
                    file.seek(max(path.stat().st_size - room, 0))
                    found[label] = file.read(room).decode("utf-8", errors="replace")
                    room -= len(found[label])
    return found


def find_failure(
    played: PlayedProgram, calls: Sequence[RecordedCall], traces: Sequence[Mapping[str, Any]]
) -> ProgramFailure | None:
    """Return why the rollout has no reward; None if there is something to verify.

    A model that could not be asked is not the program's fault, however that ended then: some end well all the same.
    """
    last_error = traces[-1]["error"] if traces else None
    if last_error is not None and (played.failure is None or played.failure.name in _ENDINGS_OF_PROGRAMS):
        return ProgramFailure(
            "model_endpoint",
            f"the model did not answer the last of {len(traces)} calls: {last_error}\n"
            "hint: look at the log of the model server and at its endpoint; the program is not to blame",
        )
    if played.failure is not None:
        return played.failure
    if calls:
        return None
    return ProgramFailure(
        "no_model_call",
        "the program ended without a call of its model.\n"
        f"it printed: {(played.stdout.strip() or played.stderr.strip())[-500:] or 'nothing'}\n"
        "hint: its config must lead it to `$base_url` or `$root_url`",
    )
