# SPDX-License-Identifier: Apache-2.0
"""What needs the library: run by `test_app.py`, with the Python of the server's own environment."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import verifiers as vf

from responses_api_agents.verifiers_v0_env.app import VerifiersV0Env
from responses_api_agents.verifiers_v0_env.catalog import list_environments, make_rows
from responses_api_agents.verifiers_v0_env.environments import load_environment
from responses_api_agents.verifiers_v0_env.generate_data import rows
from responses_api_agents.verifiers_v0_env.tests.solving_model import SolvingModel
from tests.support.served_run import ServedRun, serve_run

FOLDER = "responses_api_agents/verifiers_v0_env/sample_environments"
EPISODES = 60
BLOCK = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}


@pytest.fixture
async def run(monkeypatch):
    async with serve_run(monkeypatch, policy_model=SolvingModel, agent=(VerifiersV0Env, BLOCK)) as served:
        yield served


async def score_with_library_alone(run: ServedRun, environment: str) -> list[float]:
    """Return the reward of every example, as the library's own evaluation gives it."""
    client = vf.ClientConfig(api_base_url=f"{run.urls['policy_model']}/v1", api_key_var="NO_KEY")
    loaded = load_environment(environment, "{}")
    scored = await loaded.evaluate(client, "policy_model", num_examples=EPISODES, rollouts_per_example=1)
    return [output["reward"] for output in sorted(scored["outputs"], key=lambda output: output["example_id"])]


async def play(run: ServedRun, row: dict[str, Any]) -> dict[str, Any]:
    answer = await run.client.post("agent", "/run", json=row)
    assert answer.status == 200, answer.headers.get("x-nemo-gym-failure")
    return await answer.json()


@pytest.mark.parametrize(
    ("name", "levels"),
    [("reverse_words", {0.0, 0.5, 1.0}), ("guess_number", {1.0, 0.5}), ("shop_till", {0.1, 1.1})],
)
async def test_rewards_are_those_of_the_library(run, name, levels):
    environment = f"{FOLDER}/{name}.py"
    alone = await score_with_library_alone(run, environment)
    played = await asyncio.gather(*(play(run, row) for row in make_rows(environment, EPISODES, 0, {})))
    assert [row["reward"] for row in played] == alone
    assert len(alone) == EPISODES
    assert levels <= set(alone)


async def test_a_row_holds_the_conversation_its_tools_and_the_parts_of_the_reward(run):
    row = await play(run, make_rows(f"{FOLDER}/shop_till.py", 1, 1, {})[0])
    kinds = [item["type"] for item in row["response"]["output"]]
    assert kinds == ["function_call"] * 2 + ["function_call_output"] * 2 + ["message"]
    assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == ["look_up_price"]
    assert sum(row["reward_components"].values()) == pytest.approx(row["reward"])
    assert row["runner_metrics"]["look_up_price_calls"] == 2
    assert row["runner_metrics"]["num_turns"] == row["model_calls"] == 2
    assert row["response"]["usage"]["total_tokens"] == 20


def write_environment(folder: Path, name: str, body: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(
        "import asyncio, verifiers as vf\nfrom datasets import Dataset\n"
        f"{body}\n"
        "def load_environment(**args):\n"
        "    rows = Dataset.from_list([{'question': 'a b', 'answer': 'b a'}])\n"
        "    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[score]))\n"
    )
    return str(path)


async def fail(run: ServedRun, environment: str) -> str:
    row = {"responses_create_params": {"input": []}, "environment": {"id": environment, "example": 0}}
    answer = await run.client.post("agent", "/run", json=row)
    assert answer.status != 200
    return answer.headers["x-nemo-gym-failure"]


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_reward_function_that_raises_is_a_failure_and_no_zero(run, tmp_path, kind):
    name = f"raising_{kind.replace(' ', '_')}"
    failure = await fail(run, write_environment(tmp_path, name, f"{kind} score(completion):\n    return {{}}['judge']"))
    assert '"kind": "verifier"' in failure
    assert "score: KeyError: 'judge'" in failure
    assert "reward_errors: zero" in failure


async def test_a_reward_function_that_raises_counts_zero_where_the_config_says_so(monkeypatch, tmp_path):
    environment = write_environment(tmp_path, "raising_zero", "def score(completion):\n    return int('x')")
    row = {"responses_create_params": {"input": []}, "environment": {"id": environment, "example": 0}}
    config = {**BLOCK, "reward_errors": "zero"}
    async with serve_run(monkeypatch, policy_model=SolvingModel, agent=(VerifiersV0Env, config)) as run:
        played = await play(run, row)
    assert played["reward"] == 0.0
    assert "ValueError" in played["runner_info"]["reward_errors"][0]


async def test_an_environment_that_blocks_fails_by_name_and_the_next_one_plays(monkeypatch, tmp_path):
    blocking = write_environment(tmp_path, "blocking", "def score(completion):\n    while True: pass")
    config = {**BLOCK, "rollout_timeout_s": 5}
    async with serve_run(monkeypatch, policy_model=SolvingModel, agent=(VerifiersV0Env, config)) as run:
        assert '"kind": "timeout"' in await fail(run, blocking)
        assert (await play(run, make_rows(f"{FOLDER}/reverse_words.py", 1, 0, {})[0]))["model_calls"] == 1


async def test_a_reward_that_is_nan_is_a_failure(run, tmp_path):
    environment = write_environment(tmp_path, "nan_reward", "def score(completion):\n    return float('nan')")
    assert "not a finite number" in await fail(run, environment)


async def test_an_example_that_is_not_there_is_a_failure_with_a_hint(run):
    row = {"responses_create_params": {"input": []}, "environment": {"id": f"{FOLDER}/shop_till.py", "example": 60}}
    answer = await run.client.post("agent", "/run", json=row)
    assert "hint: write the rows again" in answer.headers["x-nemo-gym-failure"]


async def test_an_environment_that_is_not_installed_is_a_failure_that_names_others(run):
    failure = await fail(run, "reverse_word")
    assert "is not installed" in failure
    assert "reverse_words.py" in failure


def test_the_catalog_lists_the_samples_with_what_they_are():
    listed = {entry["id"].split("/")[-1]: entry["description"] for entry in list_environments()}
    assert listed["shop_till.py"] == "Tools: look up prices and add them up."


def test_the_example_rows_are_what_the_generator_writes():
    stored = (Path(__file__).parents[1] / "data" / "example.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in stored] == rows()
