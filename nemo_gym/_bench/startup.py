# SPDX-License-Identifier: Apache-2.0
"""From `gym env start` to three healthy servers, beside the bare imports that any such server needs.

Warm: a first start writes bytecode and is not counted. Wall time, since that is what a user waits for.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import psutil

from nemo_gym._bench.measure import in_turns, in_unit, ratios_of
from nemo_gym._bench.report import Row

_ROUNDS = 5
_TIME_BOUND = 3.0
_MEMORY_BOUND_MB = 220
_PROCESS_BOUND = 2
_SETTLED_S = 1.0


def run() -> list[Row]:
    """The start of the smallest useful set of servers."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory(prefix="perf-startup-") as folder:
        env = {**inherited, "PYTHONPYCACHEPREFIX": folder, "NEMO_GYM_RUN_TOKEN_DIR": folder}
        start = _Start(env, folder)
        footprint = start.measured().footprint
        samples = in_turns({"imports": Imports(env), "start": lambda: start.measured().seconds}, _ROUNDS)
    return [
        Row.of_samples("three servers ready", ratios_of(samples, "start", "imports"), "x bare imports", _TIME_BOUND),
        Row.of_samples("three servers ready, wall", in_unit(samples, "start", 1000), "ms"),
        Row("idle memory of the whole tree", footprint.memory_mb, "MB resident", _MEMORY_BOUND_MB),
        Row("processes of the whole tree", footprint.processes, "", _PROCESS_BOUND),
    ]


class Imports:
    """The wall time of importing what any server needs, in a fresh interpreter."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env

    def __call__(self) -> float:
        started = time.perf_counter()
        code = "import fastapi, uvicorn, aiohttp, omegaconf"
        subprocess.run([sys.executable, "-c", code], env=self._env, check=True)
        return time.perf_counter() - started


@dataclass(frozen=True)
class _Footprint:
    memory_mb: float
    processes: int


@dataclass(frozen=True)
class _Started:
    seconds: float
    footprint: _Footprint


class _Start:
    def __init__(self, env: dict[str, str], folder: str) -> None:
        self._env = env
        self._folder = folder

    def measured(self) -> _Started:
        started = time.perf_counter()
        process = subprocess.Popen(self._command(), env=self._env, cwd=self._folder, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            seen = list[str]()
            for line in process.stderr:
                seen.append(line)
                if "servers ready" in line:
                    break
            else:
                raise RuntimeError(f"the servers did not start:\n{''.join(seen)}")
            seconds = time.perf_counter() - started
            time.sleep(_SETTLED_S)
            root = psutil.Process(process.pid)
            tree = [root, *root.children(recursive=True)]
            memory_mb = sum(one.memory_info().rss for one in tree) / 2**20
            return _Started(seconds, _Footprint(memory_mb, len(tree)))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
            process.stderr.close()

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "nemo_gym.cli.main",
            "env",
            "start",
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "openai_model",
            "++policy_base_url=http://127.0.0.1:9/v1",
            "++policy_api_key=none",
            "++policy_model_name=none",
            "++model_endpoint_readiness_timeout_seconds=0",
            f"++head_server.port={free_port()}",
        ]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
