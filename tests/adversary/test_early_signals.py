# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and Ctrl-C before the first rollout, whatever the run waits for: it ends at once and leaves nothing."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.eval_runs import Endpoint, Runner, write_tasks
from tests.support.small_servers import free_port

pytestmark = pytest.mark.slow
SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def silent():
    """Somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    return server.getsockname()[1]


def require_end(process, folder: Path) -> None:
    with process.stderr:
        assert "stopped before any rollout ran" in process.stderr.read()
    assert process.wait(300) == 130
    assert not list(folder.glob("r*")), "nothing half-begun is left"


@SIGNALS
@pytest.mark.fault(
    place="Command line",
    fault="A signal comes while the run waits for the answer of a head server or of the model's endpoint",
    outcome="It ends at once with 130 and leaves no file.",
)
@pytest.mark.parametrize("awaited", ["head", "endpoint"])
def test_a_signal_ends_a_run_that_waits_for_an_answer(tmp_path, silent, number, awaited):
    head_port = port_of(silent) if awaited == "head" else free_port()
    runner = Runner(tmp_path, Endpoint(port_of(silent)), head_port)
    arguments = ["--no-serve"] if awaited == "head" else ["--wait-for-model", "600"]
    tasks = write_tasks(tmp_path / "tasks.jsonl", 3)
    process = runner.start("-i", str(tasks), *arguments, stderr=subprocess.PIPE)
    with silent.accept()[0]:
        process.send_signal(number)
        require_end(process, tmp_path)


@SIGNALS
@pytest.mark.fault(
    place="Command line",
    fault="A signal comes while the run reads its tasks from a pipe",
    outcome="It ends at once with 130 and leaves no file.",
)
def test_a_signal_ends_a_run_that_waits_for_its_tasks(tmp_path, silent, number):
    runner = Runner(tmp_path, Endpoint(port_of(silent)), free_port())
    fifo = tmp_path / "tasks.fifo"
    os.mkfifo(fifo)
    process = runner.start("-i", str(fifo), stderr=subprocess.PIPE)
    with fifo.open("w"):  # returns when the run reads
        process.send_signal(number)
        require_end(process, tmp_path)


@pytest.mark.fault(
    place="Model endpoint",
    fault="It never answers the first calls, and SIGTERM comes",
    outcome="What runs is cancelled, the run ends with 130, and all is left to `--resume`.",
)
def test_sigterm_ends_a_run_whose_first_calls_are_never_answered(tmp_path, silent):
    runner = Runner(tmp_path, Endpoint(port_of(silent)), free_port())
    runner.flags.append("++model_endpoint_readiness_timeout_seconds=0")
    tasks = write_tasks(tmp_path / "tasks.jsonl", 3)
    process = runner.start("-i", str(tasks), stderr=subprocess.PIPE)
    with silent.accept()[0], process.stderr:
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert "3 of 3 rollouts did not run." in said
    assert process.wait(300) == 130
