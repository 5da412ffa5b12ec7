# SPDX-License-Identifier: Apache-2.0
"""`gym eval reverify`: stored responses are scored again by the verifiers of a config."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_gym._bench.fake_endpoint import running
from tests.support import warm_start
from tests.support.warm_start import WarmProcess

pytestmark = pytest.mark.slow


class Folder:
    """A run of five rollouts, and what is made of it."""

    def __init__(self, path: Path, url: str, port: int) -> None:
        self.path = path
        server = ["--resources-server", "example_single_tool_call", "--model-type", "openai_model", "--model", "m"]
        self.flags = [*server, "--model-url", f"{url}/v1", "--model-api-key", "k", f"++head_server.port={port}"]

    def gym(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return warm_start.run(["eval", command, *self.flags, *arguments], cwd=self.path, timeout=500)

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
    on_tokens = {"mask_sample": True, "_ng_token_drift": {"class": "forked"}}
    folder.write("r.jsonl", [{**row, "reward": 0.25, **on_tokens} for row in folder.rows("r.jsonl")])
    done = folder.reverify("--json")
    assert done.returncode == 0, done.stderr
    assert [row["reward"] for row in folder.rows("again.jsonl")] == [1.0] * 5
    assert all(on_tokens.items() <= row.items() for row in folder.rows("again.jsonl")), "it is the same response"
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


SLOW_APP = """
import asyncio
from pathlib import Path
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

class Slow(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        await asyncio.sleep(0.3 if Path("slow").exists() else 0.0)
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

if __name__ == "__main__":
    Slow.run_webserver()
"""


def test_a_reverification_that_is_interrupted_says_so_and_can_be_resumed(folder):
    server = folder.path / "resources_servers" / "slow"
    server.mkdir(parents=True)
    (server / "app.py").write_text(SLOW_APP)
    block = {"resources_servers": {"slow": {"entrypoint": "app.py", "domain": "other"}}}
    agent = "example_single_tool_call_simple_agent"
    refs = {"resources_server": {"type": "resources_servers", "name": "slow"}}
    refs["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
    config = {"slow": block, agent: {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", **refs}}}}
    (folder.path / "slow.yaml").write_text(yaml.safe_dump(config))
    (folder.path / "slow").touch()
    words = ["eval", "reverify", "--config", "slow.yaml", folder.flags[-1], "--force", "--concurrency", "1"]
    command = [*words, "--rollouts", "r.jsonl", "-o", "again.jsonl"]
    process = WarmProcess(command, cwd=folder.path, stderr=subprocess.PIPE)
    ends = time.monotonic() + 300
    again = folder.path / "unsafe_again.jsonl"
    while not again.exists() or not again.stat().st_size:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < ends
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    with process.stderr:
        errors = process.stderr.read()
    assert process.wait(timeout=300) == 130
    assert "--resume" in errors
    assert json.loads((folder.path / "unsafe_again_run.json").read_text())["status"] == "interrupted"
    assert 0 < len(folder.rows(again.name)) < 5
    (folder.path / "slow").unlink()
    done = warm_start.run([*command, "--resume"], cwd=folder.path, timeout=500)
    assert done.returncode == 0, done.stderr
    assert len(folder.rows(again.name)) == 5
    assert json.loads((folder.path / "unsafe_again_run.json").read_text())["status"] == "finished"
