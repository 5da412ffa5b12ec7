# SPDX-License-Identifier: Apache-2.0
"""From `gym demo` to its first scored rollout: the bare imports that any server needs, the load of the model, and ours.

Warm: the weights are in the cache and the first start, which writes bytecode, is not counted. Wall time, since that is
what a newcomer waits for. The model's load time is that of llama.cpp alone, in a process that does nothing else.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from nemo_gym._bench.measure import in_turns, median_of
from nemo_gym._bench.report import Row
from nemo_gym._bench.startup import Imports, free_port

_ROUNDS = 5
_BOUND = 4.0
_POLL_S = 0.002
_DEADLINE_S = 300.0
_LOAD = """
import time
from collections.abc import Callable
from responses_api_models.local_model.app import LocalModelConfig
from responses_api_models.local_model.engine import Engine, EngineSettings, default_threads
from responses_api_models.local_model.weights import ensure_weights, weights_folder
import xllamacpp
config = LocalModelConfig(name="", host="", port=0, entrypoint="")
path = ensure_weights(weights_folder())
settings = EngineSettings(path, config.context_length, config.slots, default_threads(), config.batch_size)
begin = time.perf_counter()
engine = Engine(settings)
print(time.perf_counter() - begin)
"""


def run() -> list[Row]:
    """The wait for the first reward, less the load of the model, in bare imports."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory(prefix="perf-demo-") as folder:
        env = {**inherited, "PYTHONPYCACHEPREFIX": folder, "NEMO_GYM_RUN_TOKEN_DIR": folder}
        cases: dict[str, Callable[[], float]] = {
            "imports": Imports(env),
            "load": lambda: _load(env),
            "demo": lambda: _first_reward(env, Path(folder)),
        }
        samples = in_turns(cases, _ROUNDS)
    rounds = zip(samples["demo"], samples["load"], samples["imports"], strict=True)
    ratio = statistics.median((demo - load) / imports for demo, load, imports in rounds)
    return [
        Row("gym demo to its first reward, less the model's load", ratio, "x bare imports", _BOUND),
        Row("gym demo to its first reward, wall", 1000 * median_of(samples, "demo"), "ms"),
        Row("load of the model by llama.cpp alone, wall", 1000 * median_of(samples, "load"), "ms"),
    ]


def _load(env: dict[str, str]) -> float:
    command = [sys.executable, "-c", _LOAD]
    return float(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)


def _first_reward(env: dict[str, str], folder: Path) -> float:
    """The seconds from the start of the command to the first complete line of its journal."""
    output = folder / "rollouts.jsonl"
    output.unlink(missing_ok=True)
    log = folder / "demo.log"
    with log.open("w") as sink:
        begin = time.perf_counter()
        process = subprocess.Popen(_command(output), env=env, cwd=folder, stdout=sink, stderr=sink)
        try:
            while not (output.exists() and output.stat().st_size):
                if process.poll() is not None or time.perf_counter() - begin > _DEADLINE_S:
                    raise RuntimeError(f"the demo scored nothing:\n{log.read_text()}")
                time.sleep(_POLL_S)
            seconds = time.perf_counter() - begin
            if process.wait(timeout=_DEADLINE_S) != 0:
                raise RuntimeError(f"the demo failed:\n{log.read_text()}")
            return seconds
        finally:
            process.kill()


def _command(output: Path) -> list[str]:
    port = f"++head_server.port={free_port()}"
    return [sys.executable, "-m", "nemo_gym.cli.main", "demo", "--limit", "1", "--output", str(output), port]
