# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` with agents that are programs: what it keeps of those that fail, and what an end of the run leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from nemo_gym import PARENT_DIR

pytestmark = pytest.mark.thorough

GYM = Path(sys.executable).parent / "gym"
ASK = 'curl -s "$$OPENAI_BASE_URL/responses" -H "content-type: application/json" -d "{\\"input\\":\\"Hello\\"}"'
CONFIG = """
config_paths:
- resources_servers/string_match/configs/string_match.yaml
- responses_api_agents/program_agent/configs/shell.yaml
policy_model:
  responses_api_models:
    replay_model: {{entrypoint: app.py, replies: ["Paris"], on_miss: cycle}}
shell:
  _inherit_from: shell_agent
  responses_api_agents:
    program_agent:
      resources_server: {{name: string_match}}
      time_limit_s: {time_limit_s}
      command: {command}
"""
ROWS = 2


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of the run's own, with one for temporary files."""
    (tmp_path / "tmp").mkdir()
    return tmp_path


def start(folder: Path, script: str, *more: str, time_limit_s: float = 600) -> subprocess.Popen[bytes]:
    config, rows = folder / "config.yaml", folder / "rows.jsonl"
    config.write_text(CONFIG.format(command=json.dumps(["sh", "-c", script]), time_limit_s=time_limit_s))
    row = {"responses_create_params": {"input": "Capital of France?"}, "expected_answer": "Paris"}
    rows.write_text("".join(json.dumps({**row, "extraction_mode": "full_response"}) + "\n" for _ in range(ROWS)))
    command = [GYM, "eval", "run", "--config", config, "--agent", "shell", "--input", rows]
    command += ["--output", folder / "out.jsonl", *more]
    env = {**os.environ, "TMPDIR": str(folder / "tmp")}
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(list(map(str, command)), cwd=PARENT_DIR, env=env, stdout=log, stderr=log)


def read_rows(folder: Path, name: str = "out.jsonl") -> list[dict]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def find_processes(folder: Path) -> list[psutil.Process]:
    """Return the processes of sandboxes of this run: `sleep` for a time that no other test sleeps for."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[:1] == ["sleep"] and words[1:] == [sleep_time(folder)]:
            found.append(process)
    return found


def sleep_time(folder: Path) -> str:
    return str(10_000 + hash(str(folder)) % 1_000_000)


def wait_for(condition, log: Path) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def list_left(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "tmp").glob("nemo-gym-*"))


@pytest.mark.slow
def test_a_program_that_fails_is_scored_and_keeps_what_the_model_said(folder):
    run = start(folder, f"{ASK}; exit 3")
    assert run.wait(300) == 0
    scored = read_rows(folder, "out.jsonl")
    assert len(scored) == ROWS, (folder / "log.txt").read_text()[-3000:]
    for row in scored:
        assert row["program"]["fault"]["kind"] == "program_failed"
        assert "exit code 3" in row["program"]["fault"]["message"]
        assert row["response"]["output"][0]["content"][0]["text"] == "Paris"
        assert row["model_calls"] == 1
        assert row["program"]["exit_code"] == 3
    assert list_left(folder) == []


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM], [signal.SIGKILL]], ids=str)
def test_a_run_that_is_ended_leaves_no_process_no_mount_and_no_folder(folder, signals):
    run = start(folder, f"{ASK}; setsid sleep {sleep_time(folder)} & sleep {sleep_time(folder)}")
    try:
        wait_for(lambda: len(find_processes(folder)) == 2 * ROWS or run.poll() is not None, folder / "log.txt")
        assert run.poll() is None, (folder / "log.txt").read_text()[-3000:]
        for number in signals:
            run.send_signal(number)
            time.sleep(0.5)
        run.wait(300)
    finally:
        run.kill()
        run.wait()
    wait_for(lambda: find_processes(folder) == [], folder / "log.txt")
    assert str(folder) not in Path("/proc/mounts").read_text()
    if signals == [signal.SIGKILL]:
        assert list_left(folder) != []
        again = start(folder, ASK)
        assert again.wait(300) == 0, (folder / "log.txt").read_text()[-3000:]
        assert [row["reward"] for row in read_rows(folder)] == [1.0] * ROWS
    assert list_left(folder) == []
