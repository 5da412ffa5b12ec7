# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` as a user waits for it: from the command to the first request that reaches the model, and from the
last rollout to the exit. What lies between, the rollouts themselves, is measured by `eval_rollouts` and `scale`.

Wall time, beside the bare imports of `startup` where it is a start. A first run writes bytecode and is not counted.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from nemo_gym._bench import fake_endpoint
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.measure import in_turns, in_unit, ratios_of
from nemo_gym._bench.report import Row
from nemo_gym._bench.startup import Imports, free_port

_ENVIRONMENTS = Path(__file__).parents[2] / "resources_servers"
_ROUNDS = 5
_START_BOUND = 3.0
_MANY_ROLLOUTS = 10_000
_EXIT_BOUND_S = 0.5
_EXIT_BOUND_PER_ROW_S = 20e-6


class Command:
    """`gym eval run` on the examples of an environment through openai_model, with all it writes in one folder."""

    def __init__(
        self,
        base_url: str,
        folder: str,
        environment: str = "example_single_tool_call",
        servers: Path = _ENVIRONMENTS,
    ) -> None:
        """`servers` is the folder that holds the environment, if it is not one of ours."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        self.env = {**inherited, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "NEMO_GYM_RUN_TOKEN_DIR": folder}
        self.output = Path(folder) / "rollouts.jsonl"
        self._base_url = base_url
        self._folder = folder
        self._environment = environment
        self._servers = servers

    def start(self, *arguments: str, **popen: Any) -> subprocess.Popen[bytes]:
        """Start it; `popen` says where its output goes."""
        return subprocess.Popen(self.argv(*arguments), env=self.env, cwd=self._folder, **popen)

    def write_tasks(self, number: int) -> str:
        """A file of so many tasks, no two alike."""
        file = self._servers / self._environment / "data" / "example.jsonl"
        examples = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        path = Path(self._folder) / f"{number}_tasks.jsonl"
        with path.open("wb") as tasks:
            for index in range(number):
                tasks.write(orjson.dumps({**examples[index % len(examples)], "number": index}) + b"\n")
        return str(path)

    def argv(self, *arguments: str) -> list[str]:
        """The command line, with `arguments` at its end."""
        return [
            *(sys.executable, "-m", "nemo_gym.cli.main", "eval", "run"),
            *("--resources-server", self._environment, "--model-type", "openai_model"),
            *("--model", "fake", "--model-url", f"{self._base_url}/v1", "--model-api-key", "none"),
            *(
                "--agent",
                f"{self._environment}_simple_agent",
                "--output",
                str(self.output),
                f"++head_server.port={free_port()}",
            ),
            *arguments,
        ]


@contextmanager
def prepared(
    settings: Settings | None = None, environment: str = "example_single_tool_call"
) -> Iterator[tuple[Command, str]]:
    """The command and the base URL of the endpoint that it is to talk to, while the context lasts."""
    with (
        tempfile.TemporaryDirectory(prefix="perf-eval-") as folder,
        fake_endpoint.running(settings) as base_url,
    ):
        yield Command(base_url, folder, environment), base_url


def stats(base_url: str, *, then_reset: bool = False) -> dict[str, Any]:
    """What the endpoint has counted."""
    with urllib.request.urlopen(f"{base_url}/stats", timeout=30) as response:
        counted: dict[str, Any] = orjson.loads(response.read())
    if then_reset:
        urllib.request.urlopen(urllib.request.Request(f"{base_url}/stats", method="DELETE"), timeout=30).close()
    return counted


def run() -> list[Row]:
    """Both ends of a run."""
    with prepared() as (command, base_url):
        first_request = _FirstRequest(command, base_url)
        samples = in_turns({"imports": Imports(command.env), "first request": first_request}, _ROUNDS)
        exit_s = median(_exit_after_last_rollout(command) for _ in range(2))
    return [
        Row.of_samples(
            "first model request", ratios_of(samples, "first request", "imports"), "x bare imports", _START_BOUND
        ),
        Row.of_samples("first model request, wall", in_unit(samples, "first request", 1000), "ms"),
        Row(
            f"exit after {_MANY_ROLLOUTS:,} rollouts",
            exit_s,
            "s after the last one",
            _EXIT_BOUND_S + _EXIT_BOUND_PER_ROW_S * _MANY_ROLLOUTS,
        ),
    ]


class _FirstRequest:
    """From the command to the first request at the endpoint."""

    def __init__(self, command: Command, base_url: str) -> None:
        self._command = command
        self._base_url = base_url
        self._tasks = command.write_tasks(1)

    def __call__(self) -> float:
        stats(self._base_url, then_reset=True)
        # By the clock on the wall, which the endpoint's process shares.
        started = time.time()
        _finished(self._command, "--input", self._tasks)
        first_call_at: float = stats(self._base_url)["first_call_at"]
        return first_call_at - started


def _exit_after_last_rollout(command: Command) -> float:
    """The journal's last line is written when the last rollout ends."""
    _finished(command, "--input", command.write_tasks(_MANY_ROLLOUTS), "--concurrency", "256")
    return time.time() - command.output.stat().st_mtime


def _finished(command: Command, *arguments: str) -> None:
    process = command.start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"`gym eval run` ended with code {process.returncode}:\n{errors.decode()}")
