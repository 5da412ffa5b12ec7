# SPDX-License-Identifier: Apache-2.0
"""What short commands cost, beside importing the two libraries that no config can be read without.

With bytecode in place and in a fresh interpreter each time, as a user runs them. The catalog that is listed holds a
hundred benchmarks: a number that does not change when some are added to the project.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nemo_gym._bench.measure import cpu_of_child, in_turns, ratios_of
from nemo_gym._bench.report import Row

_ROUNDS = 11
_BENCHMARKS = 100
_BOUNDS = {"gym --help": 1.2, "gym --version": 2.5, "gym list benchmarks": 2.5, "gym env validate": 2.5}
_THREE_SERVERS = """\
config_paths:
- resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml
- responses_api_models/openai_model/configs/openai_model.yaml
"""
_BENCHMARK = """\
config_paths: [resources_servers/example_multi_step/configs/example_multi_step.yaml]
bench_{number}_simple_agent:
  _inherit_from: example_multi_step_simple_agent
  responses_api_agents:
    simple_agent:
      datasets:
      - name: bench_{number}
        type: benchmark
        jsonl_fpath: benchmarks/bench_{number}/data/bench_{number}_benchmark.jsonl
        prepare_script: benchmarks/bench_{number}/prepare.py
        num_repeats: 4
"""


def run() -> list[Row]:
    """Every command of `_BOUNDS` as a multiple of the imports."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory(prefix="perf-cli-") as folder:
        root = Path(folder)
        env = {**inherited, "PYTHONPYCACHEPREFIX": str(root / "bytecode"), "NEMO_GYM_EXTRA_ROOTS": folder}
        config = root / "three_servers.yaml"
        config.write_text(_THREE_SERVERS)
        _write_benchmarks(root)
        cases = {name: _Command(name.split()[1:], env) for name in _BOUNDS if name != "gym env validate"}
        cases["gym env validate"] = _Command(["env", "validate", "--config", str(config)], env)
        samples = in_turns({"imports": _Imports(env), **cases}, _ROUNDS)
    return [
        Row.of_samples(name, ratios_of(samples, name, "imports"), "x the imports", bound)
        for name, bound in _BOUNDS.items()
    ]


def _write_benchmarks(root: Path) -> None:
    for number in range(_BENCHMARKS):
        folder = root / "benchmarks" / f"bench_{number}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(_BENCHMARK.format(number=number))


class _Imports:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def __call__(self) -> float:
        return cpu_of_child([sys.executable, "-c", "import omegaconf, pydantic"], self._env)


class _Command:
    """A command as its console script runs it."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self._argv = [sys.executable, str(Path(sys.executable).with_name("gym")), *arguments]
        self._env = env

    def __call__(self) -> float:
        return cpu_of_child(self._argv, self._env, quiet=True)
