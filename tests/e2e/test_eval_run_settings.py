# SPDX-License-Identifier: Apache-2.0
"""What else `gym eval run` does when told: captured calls and tokens in its rows, trackers, a driver, prepared data."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym._bench.fake_endpoint import running
from nemo_gym._bench.fake_replies import Settings
from tests.support import warm_start
from tests.support.fake_openai import FakeOpenAI, chat
from tests.support.mlflow_store import mlflow_store

pytestmark = [pytest.mark.thorough, pytest.mark.slow]
AGENT = "example_single_tool_call_simple_agent"
TOKENS = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -0.25]}
DRIVER = """
from nemo_gym.rollout_collection import RolloutCollectionHelper

async def collect(config, resolved):
    assert resolved["policy_model_name"] == "m"
    results = await RolloutCollectionHelper().run_from_config(config)
    print(f"driven: {len(results)} results")
"""


class Runs:
    """Commands in a folder of their own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._head = f"++head_server.port={port}"

    def command(self, url: str, *arguments: str, model: str = "openai_model") -> list[str]:
        endpoint = ["--model-type", model, "--model", "m", "--model-url", url, "--model-api-key", "sk-secret"]
        server = ["--resources-server", "example_single_tool_call"]
        return ["eval", "run", *server, *endpoint, self._head, "-o", "r.jsonl", *arguments]

    def run(self, url: str, *arguments: str, **model: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        return warm_start.run(
            self.command(f"{url}/v1", *arguments, **model), cwd=self.folder, env=environment, timeout=500
        )

    def rows(self, name: str = "r.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def runs(tmp_path: Path, unused_tcp_port: int) -> Runs:
    return Runs(tmp_path, unused_tcp_port)


@pytest.fixture
def url() -> Iterator[str]:
    with running() as url:
        yield url


def test_rows_hold_the_captured_calls_and_the_trajectory_and_metrics_do_not_see_them(runs, url):
    captures = runs.folder / "captures"
    done = runs.run(url, "++observability_enabled=true", f"++model_call_capture_dir={captures}", "--num-repeats", "2")
    assert done.returncode == 0, done.stderr
    rows = runs.rows()
    assert len(rows) == 10
    for row in rows:
        rollout_id = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        capture, trajectory = row["ng_model_call_capture"], row["ng_trajectory"]
        assert capture["rollout_id"] == trajectory["rollout_id"] == rollout_id
        assert (capture["metrics"]["num_calls"], trajectory["gaps"]) == (2, [])
        (invocation,), (turn,), (tool_call,) = (trajectory[name] for name in ("invocations", "turns", "tool_calls"))
        ids = [call["model_call_id"] for call in capture["calls"]]
        assert [ref["model_call_id"] for ref in invocation["model_calls"]] == ids
        assert (turn["step_count"], tool_call["status"]) == (2, "completed")
        assert capture["calls"][0]["tool_calls"][0]["call_id"] == tool_call["tool_call_id"]
        assert [call["request"] is not None for call in trajectory["model_calls"]] == [True, True]
        assert (captures / f"{rollout_id}.capture.jsonl").is_file()
    assert "sk-secret" not in (runs.folder / "r.jsonl").read_text()
    (metrics,) = json.loads((runs.folder / "r_aggregate_metrics.json").read_text())
    assert not [name for name in metrics["agent_metrics"] if "ng_" in name]


@pytest.mark.thorough
def test_a_failure_holds_the_calls_that_led_to_it(runs):
    with running(Settings(faults={"500": 1.0})) as url:
        arguments = ["++observability_enabled=true", f"++model_call_capture_dir={runs.folder / 'captures'}"]
        done = runs.run(url, *arguments, "--limit", "1")
    assert done.returncode == 1
    (failure,) = runs.rows("r_failures.jsonl")
    (call,) = failure["ng_model_call_capture"]["calls"]
    assert call["error_category"] == "exception"
    assert failure["ng_trajectory"]["model_calls"][0]["request"]["input"]


async def test_token_ids_reach_the_rows_and_their_files_are_gone_afterwards(runs):
    tokens = runs.folder / "tokens"
    capture = f"++token_id_capture={{enabled: true, all_agents: true, dir: '{tokens}'}}"
    async with FakeOpenAI(default=chat("cold", **TOKENS), tokens=[1, 2, 3]) as fake:
        for _ in range(2):  # the same folder twice: what the first run left must not spoil the second
            done = await asyncio.to_thread(runs.run, fake.url, capture, model="vllm_model/vllm_model_for_training")
            assert done.returncode == 0, done.stderr
            rows = runs.rows()
            assert len(rows) == 5
            assert not any(row["mask_sample"] for row in rows), rows[0]["_ng_token_capture"]
            for row in rows:
                (record,) = row["_ng_token_capture"]["records"]
                assert {name: record[name] for name in TOKENS} == TOKENS
                assert row["response"]["output"][-1]["generation_token_ids"] == [7, 8]
    assert not list(tokens.glob("*.tokens.jsonl"))


def test_a_driver_collects_instead_and_its_rollouts_are_reported(runs, url):
    (runs.folder / "my_driver.py").write_text(DRIVER)
    driver = "++rollout_collection_driver=my_driver:collect"
    done = runs.run(url, driver, "--split", "example", "--num-repeats", "2")
    assert done.returncode == 0, done.stderr
    assert "driven: 10 results" in done.stdout + done.stderr
    assert "10 scored of 10 requested" in done.stdout
    missing = runs.run(url, "++rollout_collection_driver=my_driver:nothing")
    assert missing.returncode == 1
    assert "cannot be loaded" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_data_that_was_prepared_once_is_taken_again_when_asked(runs, url):
    assert runs.run(url, "--split", "example").returncode == 0
    prepared = runs.folder / "r" / "preprocessed_datasets" / "example.jsonl"
    prepared.write_text("".join(prepared.read_text().splitlines(keepends=True)[:2]))
    again = runs.run(url, "--split", "example", "++reuse_existing_data_preparation=true")
    assert again.returncode == 0, again.stderr
    assert len(runs.rows()) == 2
    assert str(prepared.relative_to(runs.folder)) in again.stderr
    assert runs.run(url, "--split", "example").returncode == 0
    assert len(runs.rows()) == 5, "without the setting it is prepared anew"


def test_a_run_that_is_shown_or_bounded_differently_is_still_the_same_run(runs, url):
    assert runs.run(url).returncode == 0
    resumed = runs.run(url, "--resume", "--quiet", "--timeout", "100", "--allow-failures", "1", "--concurrency", "2")
    assert resumed.returncode == 0, resumed.stderr
    assert "5 done, 0 left" in resumed.stderr


def test_a_tracker_whose_library_is_missing_is_named_with_its_extra(runs, url):
    try:
        import wandb  # noqa: F401

        pytest.skip("wandb is installed")
    except ImportError:
        pass
    done = runs.run(url, "++wandb_project=p", "++wandb_name=n", "++wandb_api_key=sk-wandb", "--limit", "1")
    assert done.returncode == 0, done.stderr
    assert "pip install 'nemo-gym[wandb]'" in done.stderr


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_metrics_and_rollouts_arrive_at_a_real_tracker(runs, url):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(mlflow_store())
    experiment = client.create_experiment("of-a-run", artifact_location=str(runs.folder / "artifacts"))
    settings = [f"++mlflow_tracking_uri='{mlflow_store()}'", "++mlflow_experiment_name=of-a-run"]
    done = runs.run(url, *settings, "++mlflow_run_name=first", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["scored"] == 5, "the tracker's own words are not on stdout"
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.metrics[f"{AGENT}/mean/reward"] == 1.0
    assert run.data.metrics[f"key_metrics/{AGENT}/mean/reward"] == 1.0
    table = json.loads((runs.folder / "artifacts" / run.info.run_id / "artifacts" / "rollouts.json").read_text())
    assert [json.loads(cell)["reward"] for (cell,) in table["data"]] == [1.0] * 5
    assert "sk-secret" not in str(run.data.params)
    assert runs.run(url, *settings, "++mlflow_run_name=second", "++upload_rollouts=false").returncode == 0
    second = next(run for run in client.search_runs([experiment]) if run.info.run_name == "second")
    assert {file.path for file in client.list_artifacts(second.info.run_id)} == {"global_config.json"}
