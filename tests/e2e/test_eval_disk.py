# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` on a disk that fills up: it says so, keeps what it has, and goes on once there is room."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.eval_runs import CALLS_PER_ROLLOUT, Runner, fake_endpoint, planned, write_tasks

pytestmark = pytest.mark.thorough

TASKS = 200


@pytest.fixture
def disk(tmp_path):
    """A disk of 2 MB, most of it taken."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, timeout=300, check=False).returncode:
        pytest.skip("a tmpfs can be mounted only by root, where mounting is allowed")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=300)


def fill(disk: Path, *, room_bytes: int) -> Path:
    """Leave so much room."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    left = os.statvfs(disk)
    filler.write_bytes(bytes(left.f_bavail * left.f_frsize - room_bytes))
    return filler


def assert_says_so(done: subprocess.CompletedProcess[str], path: Path) -> None:
    assert done.returncode == 1, done.stderr
    assert f"the disk is full: {path} could not be written" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_full_disk_is_named_and_with_room_again_the_run_is_resumed_to_its_end(tmp_path, disk, unused_tcp_port):
    tasks = write_tasks(tmp_path / "tasks.jsonl", TASKS)
    arguments = ["-i", str(tasks), "--concurrency", "16", "--resume"]
    with fake_endpoint() as endpoint:
        runner = Runner(tmp_path, endpoint, unused_tcp_port, output=disk / "r.jsonl")
        filler = fill(disk, room_bytes=0)
        assert_says_so(runner.run(*arguments), disk / "r_materialized_inputs.jsonl.partial")
        assert sorted(disk.iterdir()) == [filler], "nothing was started"

        fill(disk, room_bytes=256 * 1024)
        full = runner.run(*arguments)
        assert_says_so(full, runner.output)
        assert "--resume" in full.stderr
        recorded = runner.output.read_bytes()
        assert recorded.endswith(b"}\n"), "no half-written line"
        scored = runner.keys()
        assert 0 < len(scored) < TASKS

        still_full = runner.run(*arguments)
        assert still_full.returncode == 1, still_full.stderr
        assert "the disk is full" in still_full.stderr
        assert "Traceback" not in still_full.stderr
        assert runner.output.read_bytes().startswith(recorded)

        filler.unlink()
        left = TASKS - len(runner.keys())
        endpoint.calls(then_forget=True)
        resumed = runner.run(*arguments)
        assert resumed.returncode == 0, resumed.stderr
        assert runner.output.read_bytes().startswith(recorded)
        assert sorted(runner.keys()) == planned(TASKS)
        assert endpoint.calls() == CALLS_PER_ROLLOUT * left, "what was scored is not played again"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_disk_that_is_full_when_the_metrics_are_written_costs_no_rollout(tmp_path, disk, unused_tcp_port):
    tasks = write_tasks(tmp_path / "tasks.jsonl", TASKS)
    arguments = ["-i", str(tasks), "--concurrency", "16"]
    with fake_endpoint() as endpoint:
        runner = Runner(tmp_path, endpoint, unused_tcp_port, output=disk / "r.jsonl")
        assert runner.run(*arguments, "--disable-aggregation").returncode == 0
        filler = fill(disk, room_bytes=32 * 1024)
        recorded, metrics = runner.output.read_bytes(), disk / "r_aggregate_metrics.json"
        assert_says_so(runner.run(*arguments, "--resume"), metrics)
        assert not metrics.exists()
        filler.unlink()
        assert runner.run(*arguments, "--resume").returncode == 0
        assert metrics.exists()
        assert runner.output.read_bytes() == recorded
