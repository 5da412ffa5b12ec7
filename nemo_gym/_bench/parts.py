# SPDX-License-Identifier: Apache-2.0
"""The parts of `gym bench`, and how one is run: in a process of its own, so that no part sees what another left behind.

A part is a module of this package with a function `run` that returns rows. This module loads none of them:
`run_part`, the program of such a process, does.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from nemo_gym._bench.report import Row, as_object, from_object, merge_runs

BY_DEFAULT = {
    "imports": "what importing costs",
    "cli": "short commands, beside the libraries that a config takes",
    "startup": "from `gym env start` to three healthy servers",
    "hops": "a call between two servers, in process and over HTTP",
    "schemas": "whether long conversations cost in proportion to their length",
    "bare_post": "the unit: the client's CPU for one plain POST",
    "rollouts": "a rollout from its row to its line in the journal, in bare POSTs",
    "eval_rollouts": "a rollout of `gym eval run`, all of it, in bare POSTs",
    "workers": "what two workers gain over one process",
    "eval_run": "from `gym eval run` to its first model request, and from its last rollout to its exit",
    "in_flight": "memory, and the latency that we add, with 32 to 16,000 rollouts in flight",
    "results": "aggregating and profiling 100,000 rollouts",
    "datasets": "checking, measuring and collating 100,000 rows, in bare orjson",
    "exports": "exporting 100,000 rollouts with their tokens to every format, in bare orjson",
    "environments": "verifications a second of every environment, beside bare computation for those that compute",
    "viewer": "a 1 GB rollouts file in the viewer, in a real browser",
}
ON_REQUEST = {
    "demo": "from `gym demo` to its first scored rollout",
    "step_environments": "steps a second of other systems' environments, beside their bare libraries on all cores",
    "local_model": "tokens per second of the local model, beside llama.cpp's own call",
    "constants": "what `gym bench plan` reckons with: CPU and memory of a rollout",
    "scale": "16,000 rollouts in flight, and 200,000 in a row; takes a quarter of an hour",
}
ALL = {**BY_DEFAULT, **ON_REQUEST}

_DEADLINE_S = 3600.0


@dataclass(frozen=True)
class PartResult:
    """What came of one part."""

    name: str
    rows: tuple[Row, ...] = ()
    wall_s: float = 0.0
    left_out: str = ""
    """Why it could not be measured here."""
    failure: str = ""
    """How it failed."""


def run_parts(names: Sequence[str], repeat: int, on_start: Callable[[str], None]) -> Iterator[PartResult]:
    """Run each part `repeat` times and yield its result; a part that fails stops no other."""
    for name in names:
        on_start(name)
        runs = list[PartResult]()
        began = time.perf_counter()
        while len(runs) < repeat and all(run.rows for run in runs):
            runs.append(_run_in_process(name))
        if runs[-1].rows:
            rows = merge_runs([run.rows for run in runs])
            yield PartResult(name, tuple(rows), time.perf_counter() - began)
        else:
            yield runs[-1]


def _run_in_process(name: str) -> PartResult:
    """Run a part in a new process; what it prints goes to stderr."""
    with tempfile.TemporaryDirectory(prefix="gym-bench-") as folder:
        path = Path(folder) / "result.json"
        # `-P`: a folder of the user's that is called `nemo_gym._bench` must not take the place of this package.
        argv = [sys.executable, "-P", "-m", "nemo_gym._bench.run_part", name, str(path)]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
        try:
            code = process.wait(timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired:
            return PartResult(name, failure=f"it did not end within {_DEADLINE_S:,.0f} s")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if not path.exists():
            return PartResult(name, failure=f"its process ended with code {code}")
        return read_result(path)


def write_result(path: Path, result: PartResult) -> None:
    """Write the result of a part for the process that asked for it."""
    rows = [as_object(row) for row in result.rows]
    path.write_bytes(orjson.dumps({**vars(result), "rows": rows}))


def read_result(path: Path) -> PartResult:
    """Read what `write_result` wrote."""
    found = orjson.loads(path.read_bytes())
    return PartResult(**{**found, "rows": tuple(map(from_object, found["rows"]))})
