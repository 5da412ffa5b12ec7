# SPDX-License-Identifier: Apache-2.0
"""`gym eval reverify`: stored responses are scored again by the verifiers of a config."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perf.fake_endpoint import running
from tests.support import warm_start

pytestmark = pytest.mark.slow


class Folder:
    """A run of five rollouts, and what is made of it."""

    def __init__(self, path: Path, url: str, port: int) -> None:
        self.path = path
        server = ["--resources-server", "example_single_tool_call", "--model-type", "openai_model", "--model", "m"]
        self.flags = [*server, "--model-url", f"{url}/v1", "--model-api-key", "k", f"++head_server.port={port}"]

    def gym(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return warm_start.run(["eval", command, *self.flags, *arguments], cwd=self.path, timeout=100)

    def reverify(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.gym("reverify", "--rollouts", "r.jsonl", "-o", "again.jsonl", *arguments)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        (self.path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path, unused_tcp_port):
    with running() as url:
        made = Folder(tmp_path, url, unused_tcp_port)
        done = made.gym("run", "-o", "r.jsonl")
        assert done.returncode == 0, done.stderr
        yield made


def test_stored_responses_get_the_rewards_that_the_verifier_gives_now(folder):
    folder.write("r.jsonl", [{**row, "reward": 0.25} for row in folder.rows("r.jsonl")])
    done = folder.reverify("--json")
    assert done.returncode == 0, done.stderr
    assert [row["reward"] for row in folder.rows("again.jsonl")] == [1.0] * 5
    assert json.loads(done.stdout)["counts"]["scored"] == 5
    assert not any("response" in row for row in folder.rows("again_materialized_inputs.jsonl"))
    refused = folder.reverify()
    assert refused.returncode == 1
    assert "--overwrite" in refused.stderr
    assert folder.reverify("--resume").returncode == 0
    assert len(folder.rows("again.jsonl")) == 5


def test_only_what_the_judge_gave_no_verdict_on_is_scored_and_the_rest_is_copied_and_counted_once(folder):
    *kept, judged = folder.rows("r.jsonl")
    folder.write("r.jsonl", [{**row, "reward": 0.25} for row in kept])
    folder.write("r_failures.jsonl", [{**judged, "reward": 0.0, "_ng_failure_class": "judge_failed"}])
    done = folder.reverify("--judge-failed-only")
    assert done.returncode == 0, done.stderr
    assert "5 scored of 5 requested" in done.stdout
    assert sorted(row["reward"] for row in folder.rows("again.jsonl")) == [0.25] * 4 + [1.0]
    assert len(folder.rows("again_materialized_inputs.jsonl")) == 5
    assert json.loads((folder.path / "again_run.json").read_text())["counts"]["scored"] == 5


def test_no_model_is_needed_since_nobody_plays(folder):
    folder.flags = ["--resources-server", "example_single_tool_call", folder.flags[-1]]
    done = folder.reverify("--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["scored"] == 5
    assert "policy_model" not in done.stderr
