# SPDX-License-Identifier: Apache-2.0
"""`gym env start` as a user runs it: a process of its own, watched through what it prints."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


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

    def stop(self, number: signal.Signals = signal.SIGINT, timeout_s: float = 30) -> int:
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
        [sys.executable, "-m", "nemo_gym.cli.main", "env", "start", *arguments],
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
