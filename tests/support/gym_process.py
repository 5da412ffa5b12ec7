# SPDX-License-Identifier: Apache-2.0
"""`gym env start` and `gym eval run` as a user runs them: in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nemo_gym import PARENT_DIR

_GYM = (sys.executable, "-m", "nemo_gym.cli.main")
_RUN_TIMEOUT_S = 500


class GymProcess:
    """A running `gym env start`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines = list[str]()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def read_until(self, text: str) -> None:
        """Read stderr up to the line that holds `text`."""
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"ended (code {self.process.wait()}) without printing {text!r}:\n{self.output}")

    def stop(self, number: signal.Signals = signal.SIGINT, timeout_s: float = 300) -> int:
        """Send a signal, read what is left and give the exit code."""
        self.process.send_signal(number)
        deadline = time.monotonic() + timeout_s
        self.lines.extend(self.process.stderr)
        return self.process.wait(timeout=max(1.0, deadline - time.monotonic()))


@contextmanager
def gym_env_start(
    *arguments: str, cwd: Path, roots: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[GymProcess]:
    """Start it and yield when all servers are ready."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
    if roots is not None:
        environment["NEMO_GYM_EXTRA_ROOTS"] = str(roots)
    process = subprocess.Popen(
        [*_GYM, "env", "start", *arguments],
        cwd=cwd,
        env=environment,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    gym = GymProcess(process)
    try:
        gym.read_until("servers ready!")
        yield gym
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def play_examples(config: str, reply: str, output: Path, *options: str) -> list[dict[str, Any]]:
    """Play the example rows of an agent with a model that always says `reply`; all are scored, and returned.

    `config` is `responses_api_agents/<agent>/configs/<file>.yaml`.
    """
    rows = PARENT_DIR / Path(config).parents[1] / "data" / "example.jsonl"
    model = "++policy_model.responses_api_models.replay_model"
    scripted = ["--model-type", "replay_model", f'{model}.replies=["{reply}"]', f"{model}.on_miss=cycle"]
    where = ["--input", str(rows), "--output", str(output), "--json", "--quiet"]
    command = [*_GYM, "eval", "run", "--config", config, *scripted, *where, *options]
    done = subprocess.run(command, cwd=PARENT_DIR, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["scored"] == counts["requested"] == len(rows.read_text().splitlines())
    return [json.loads(line) for line in output.read_text().splitlines()]
