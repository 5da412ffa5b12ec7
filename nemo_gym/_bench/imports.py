# SPDX-License-Identifier: Apache-2.0
"""What importing costs, in a fresh interpreter each time. Which modules get imported is a test's business, not ours.

Measured twice: with bytecode in place, and in the environment as it is. They differ where Python may not write
bytecode (`PYTHONDONTWRITEBYTECODE`, a read-only image) and compiles every module anew.
"""

import os
import sys
import tempfile
from collections.abc import Mapping

from nemo_gym._bench.measure import cpu_of_child, differences_of, in_turns, ratios_of
from nemo_gym._bench.report import Row

_CASES = {
    "nothing": "pass",
    "nemo_gym": "import nemo_gym",
    "stack": "import fastapi, aiohttp, pydantic, omegaconf",
    "base_resources_server": "import nemo_gym.base_resources_server",
}
_ROUNDS_WITH_BYTECODE = 9
_ROUNDS_AS_IS = 5
_PACKAGE_BOUND_MS = 30.0
_SERVER_BOUND = 1.3


def run() -> list[Row]:
    """`import nemo_gym` against an empty program; a server's base against the libraries it stands on."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory(prefix="perf-bytecode-") as folder:
        rows = _rows({**inherited, "PYTHONPYCACHEPREFIX": folder}, _ROUNDS_WITH_BYTECODE, "")
    return rows + _rows(os.environ, _ROUNDS_AS_IS, ", environment as it is")


def _rows(env: Mapping[str, str], rounds: int, suffix: str) -> list[Row]:
    samples = in_turns({name: _Import(code, env) for name, code in _CASES.items()}, rounds)
    package_ms = [1000 * seconds for seconds in differences_of(samples, "nemo_gym", "nothing")]
    server = ratios_of(samples, "base_resources_server", "stack")
    return [
        Row.of_samples(f"import nemo_gym{suffix}", package_ms, "ms over `pass`", _PACKAGE_BOUND_MS),
        Row.of_samples(f"import base_resources_server{suffix}", server, "x its libraries", _SERVER_BOUND),
    ]


class _Import:
    def __init__(self, code: str, env: Mapping[str, str]) -> None:
        self._argv = [sys.executable, "-c", code]
        self._env = env

    def __call__(self) -> float:
        return cpu_of_child(self._argv, self._env)
