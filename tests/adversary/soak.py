# SPDX-License-Identifier: Apache-2.0
"""Runs of many environments that are disturbed by a seeded random hand, and what must hold after each of them.

The model is the fake endpoint with a script for each task: half of the tasks are solved, the others are not. So the
reward of every rollout is known from one calm run, and a fault that turns into a score shows.
"""

import contextlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from nemo_gym import PARENT_DIR
from tests.support.eval_runs import Endpoint

ENVIRONMENTS = (
    "blackjack",
    "calendar",
    "code_gen",
    "equivalence_llm_judge",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_tool_call_multireward",
    "instruction_following",
    "math_advanced_calculations",
    "math_with_code",
    "math_with_judge",
    "mcqa",
    "reasoning_gym",
    "string_match",
    "structured_outputs",
    "workplace_assistant",
)
WRONG = "I do not know."
JUDGE_SAYS = "They are the same. [[A=B]]"
GYM = (sys.executable, "-m", "nemo_gym.cli.main")
# Each of its sandboxes loads the whole library, which takes seconds.
ONE_SANDBOX = "++reasoning_gym.resources_servers.reasoning_gym.num_processes=1"
KEY = "sk-that-nobody-may-see"
LONGEST_RUN_S = 600
DEADLINE_S = 30
"""Of one rollout, while the endpoint may hang."""

Key = tuple[int, int]


@dataclass(frozen=True)
class Tasks:
    """Rows of several environments, and the script by which the model plays each of them."""

    rows: list[dict[str, Any]]
    scripts: dict[str, list[Any]]

    def write(self, path: Path, environments: Sequence[str]) -> list[int]:
        """Write the rows of these environments to a file, and return their numbers in the order of the file."""
        chosen = [row for row in self.rows if row["environment"] in environments]
        path.write_text("".join(json.dumps(row) + "\n" for row in chosen))
        return [row["number"] for row in chosen]


def make_tasks() -> Tasks:
    """Return the example rows of all environments, numbered; every other one is scripted to be solved."""
    rows, scripts = list[dict[str, Any]](), dict[str, list[Any]]()
    for name in ENVIRONMENTS:
        solve = importlib.import_module(f"resources_servers.{name}.generate_data").solution
        agent = f"{name}_gymnasium_agent" if name == "blackjack" else f"{name}_simple_agent"
        examples = PARENT_DIR / "resources_servers" / name / "data" / "example.jsonl"
        for line in examples.read_text().splitlines():
            row, number = json.loads(line), len(rows)
            turns = solve(row) if number % 2 else [WRONG]
            messages = row["responses_create_params"]["input"]
            before = sum(message["role"] == "assistant" for message in messages)
            scripts[f"[task {number}]"] = [""] * before + turns
            messages[0]["content"] += f"\n[task {number}]"
            row["agent_ref"] = {"type": "responses_api_agents", "name": agent}
            rows.append({**row, "environment": name, "number": number})
    return Tasks(rows, scripts)


@dataclass
class Place:
    """Where runs happen: a folder, their own temporary folder in it, and an environment that marks their processes."""

    folder: Path
    endpoint: Endpoint
    mark: str
    scratch: Path = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir(parents=True)

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Start `gym` with these arguments; what it prints goes to the end of `log`."""
        environment = {**os.environ, "TMPDIR": str(self.scratch), "SOAK": self.mark}
        environment["NEMO_GYM_RUN_TOKEN_DIR"] = str(self.folder / "run-tokens")
        model = ["--model-type", "openai_model", "--model", "m", "--model-url", f"{self.endpoint.url}/v1"]
        (self.folder / "env.yaml").write_text(f"policy_api_key: {KEY}\n")
        with log.open("ab") as output:
            return subprocess.Popen(
                [*GYM, *arguments, *model, *([ONE_SANDBOX] if "reasoning_gym" in arguments else [])],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def processes(self) -> list[psutil.Process]:
        """Return the processes that were started here and have not ended."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SOAK") == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def assert_nothing_left(self) -> None:
        """Fail if a process outlives the run by seconds, a file stays in the temporary folder, or the key in any."""
        ends_at = time.monotonic() + 300
        while (left := self.processes()) and time.monotonic() < ends_at:
            time.sleep(0.1)
        assert not left, f"processes left: {[process.cmdline() for process in left]}"
        assert not (files := sorted(path.name for path in self.scratch.rglob("*"))), f"files left: {files[:10]}"
        written = (path for path in self.folder.rglob("*") if path.is_file() and path.name != "env.yaml")
        assert not (told := [path.name for path in written if KEY.encode() in path.read_bytes()]), f"key in {told}"


@dataclass
class Run:
    """One output, written by as many commands as it takes."""

    place: Place
    output: Path
    arguments: list[str]
    numbers: list[int]
    repeats: int
    log: Path

    @property
    def requested(self) -> set[Key]:
        return {(task, repeat) for task in range(len(self.numbers)) for repeat in range(self.repeats)}

    def start(self, timeout_s: int = LONGEST_RUN_S) -> subprocess.Popen[bytes]:
        """Start the run, or go on with it; `timeout_s` is the deadline of one rollout."""
        deadline = ("--timeout", str(timeout_s))
        return self.place.start("eval", "run", *self.arguments, *deadline, "--resume", log=self.log)

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of the process and return its exit code."""
        try:
            return process.wait(LONGEST_RUN_S)
        finally:
            process.kill()

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        """Return the rows of the output, or of the file beside it that has this suffix; a torn last line is none."""
        path = self.output.with_name(f"{self.output.stem}{suffix}.jsonl")
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def rewards(self) -> list[tuple[int, float]]:
        """Return the number of its task and the reward of each scored rollout."""
        return [(self.numbers[row["_ng_task_index"]], row["reward"]) for row in self.rows()]

    def assert_true(self, rewards: dict[int, float]) -> None:
        """Fail if a rollout is scored twice, was not asked for, or has another reward than in the calm run."""
        scored = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.rows())
        assert not (twice := [key for key, times in scored.items() if times > 1]), f"scored twice: {twice}"
        assert scored.keys() <= self.requested
        false = [pair for pair in self.rewards() if pair[1] != rewards[pair[0]]]
        assert not false, f"rewards that are not true, by the number of the task: {false}"

    def assert_accounted(self, code: int, *, was_stopped: bool = False) -> None:
        """Fail if the exit code says more than the files, or a run that nobody stopped has lost a rollout."""
        scored = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.rows()}
        failed = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.rows("_failures")} - scored
        assert code != 0 or scored == self.requested, f"exit code 0 with {len(scored)} of {len(self.requested)} scored"
        lost = sorted(self.requested - scored - failed)
        assert was_stopped or not lost, f"neither scored nor failed: {lost[:10]}"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a disk of 8 MB, if that is allowed here; else yield an ordinary folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


# --- disturbances -----------------------------------------------------------------------------------------------------


def draw_faults(dice: random.Random) -> dict[str, float]:
    """Return how likely each fault of the endpoint is."""
    kinds = dice.sample(["429", "500", "503", "reset", "garbage", "empty", "hang"], k=dice.randint(0, 5))
    return {kind: dice.uniform(0.005, 0.01 if kind == "hang" else 0.08) for kind in kinds}


def wait_for_rows(run: Run, process: subprocess.Popen[bytes], count: int) -> None:
    """Wait until the output has grown by so many rows, or the process has ended."""
    goal = len(run.rows()) + count
    while process.poll() is None and len(run.rows()) < goal:
        time.sleep(0.05)


def kill_a_server(run: Run, process: subprocess.Popen[bytes], dice: random.Random) -> None:
    """Kill one of the server processes of a run."""
    servers = psutil.Process(process.pid).children()
    if servers:
        dice.choice(sorted(servers, key=lambda server: server.pid)).kill()


def fill_disk(run: Run, process: subprocess.Popen[bytes], dice: random.Random) -> None:
    """Leave so little room on the disk that the run can't go on, wait for its end and make room again."""
    filler, left = run.output.with_name("filler"), os.statvfs(run.output.parent)
    if left.f_blocks * left.f_frsize > 16 << 20:
        return  # no disk of our own
    with contextlib.suppress(OSError):  # the run has taken the room first
        filler.write_bytes(bytes(max(0, left.f_bavail * left.f_frsize - dice.randint(0, 64 << 10))))
    run.finish(process)
    filler.unlink()


def lose_the_endpoint(run: Run, process: subprocess.Popen[bytes], dice: random.Random) -> None:
    """Let every call to the endpoint fail for a while."""
    run.place.endpoint.set(faults={"503": 1.0})
    time.sleep(dice.uniform(0.5, 4))
    run.place.endpoint.set(faults={})


def send(number: signal.Signals) -> Any:
    """Return a disturbance that sends a signal to the run."""

    def send_signal(run: Run, process: subprocess.Popen[bytes], dice: random.Random) -> None:
        process.send_signal(number)

    return send_signal


DISTURBANCES = {
    "none": lambda run, process, dice: None,
    "SIGINT": send(signal.SIGINT),
    "SIGTERM": send(signal.SIGTERM),
    "SIGKILL": send(signal.SIGKILL),
    "server killed": kill_a_server,
    "disk full": fill_disk,
    "endpoint lost": lose_the_endpoint,
}
