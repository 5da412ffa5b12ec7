# SPDX-License-Identifier: Apache-2.0
"""Real Ray clusters for tests: an environment that has Ray, and several nodes on this machine, any of which can die."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from nemo_gym import PARENT_DIR

_STARTS = 8
_NODES = """
import sys
from ray.cluster_utils import Cluster

settings = dict(num_cpus=2, object_store_memory=100 * 2**20)
cluster = Cluster(initialize_head=True, head_node_args=dict(settings, include_dashboard=False))
second = cluster.add_node(**settings, labels={"zone": "second"}, resources={"second": 100})
print("address", cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "kill":
        cluster.remove_node(second, allow_graceful=False)
        print("killed", flush=True)
"""


@dataclass(frozen=True)
class RayEnvironment:
    """Where programs with Ray are, and a home for them, where Ray keeps the token that opens its clusters."""

    bin: Path
    home: Path
    folder: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment of programs, apart from others' clusters."""
        own = {"HOME": str(self.home), "RAY_TMPDIR": self.folder, "RAY_USAGE_STATS_ENABLED": "0"}
        return {**{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}, **own}


@contextmanager
def ray_environment(home: Path) -> Iterator[RayEnvironment]:
    """Have an environment with Ray: the running one, or one that is built; others do not need it, and it is large."""
    if importlib.util.find_spec("ray") is not None:
        programs = Path(sys.executable).parent
    else:
        programs = home / "venv" / "bin"
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, programs.parent], check=True)
        # Compiled once: Ray starts half a dozen processes and gives them half a minute.
        words = [uv, "pip", "install", "-q", "--compile-bytecode", "--python", programs / "python"]
        words += ["-c", "constraints.txt", "-e", ".[ray]"]
        installed = subprocess.run(words, cwd=PARENT_DIR, capture_output=True, text=True)
        if installed.returncode:
            pytest.skip(f"Ray cannot be installed here: {installed.stderr[-500:]}")
    # Not below pytest's folder: Ray's sockets lie deep in it, and the path of a socket has little room.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield RayEnvironment(programs, home, folder)


class TwoNodes:
    """A cluster of two nodes, the second of which can be killed."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self._process, self.address = process, address

    def kill_second(self) -> None:
        """Kill the second node and everything on it."""
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        _read_line(self._process, "killed")


@contextmanager
def two_nodes(environment: RayEnvironment) -> Iterator[TwoNodes]:
    """Run a cluster of two nodes. Ray gives each half a minute to start, which a busy machine does not always meet."""
    for attempt in range(_STARTS):
        process = subprocess.Popen(
            [environment.bin / "python", "-c", _NODES],
            env=environment.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            try:
                address = _read_line(process, "address ")
            except EOFError as error:
                if attempt == _STARTS - 1 or "timed out" not in str(error).lower():
                    pytest.fail(f"Ray did not start:\n{error}")
                continue
            yield TwoNodes(process, address)
            return
        finally:
            for child in (*psutil.Process(process.pid).children(recursive=True), process):
                child.kill()
            process.communicate()


def _read_line(process: "subprocess.Popen[str]", start: str) -> str:
    lines: list[str] = []
    for line in process.stdout or ():
        if line.startswith(start):
            return line.removeprefix(start).strip()
        lines.append(line)
    raise EOFError("".join(lines))


def list_marked(mark: dict[str, str]) -> list[psutil.Process]:
    """Return the processes whose environment has `mark`."""

    def has_mark(process: psutil.Process) -> bool:
        try:
            return mark.items() <= process.environ().items()
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if has_mark(process)]


def wait_until_gone(mark: dict[str, str], timeout_s: float = 300) -> list[Any]:
    """Return what is left of the processes with `mark` after a while."""
    _, alive = psutil.wait_procs(list_marked(mark), timeout=timeout_s)
    return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
