# SPDX-License-Identifier: Apache-2.0
"""What needs the library: run by `test_app.py`, with the Python of the server's own environment."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from nemo_gym.errors import GymError
from responses_api_agents.atropos_env.app import AtroposEnv
from responses_api_agents.atropos_env.byte_tokenizer import provide_tokenizer, write_tokenizer
from responses_api_agents.atropos_env.catalog import list_environments, make_rows
from responses_api_agents.atropos_env.environments import load_class
from responses_api_agents.atropos_env.tests.scripted_model import ScriptedModel
from tests.support.served_run import ServedRun, serve_run

FOLDER = "responses_api_agents/atropos_env/sample_environments"
ADD, GUESS, WORDS = (
    f"{FOLDER}/{name}"
    for name in ("add_numbers.py:AddNumbers", "guess_number.py:GuessNumber", "short_words.py:ShortWords")
)
EPISODES = 60
BLOCK = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}


@pytest.fixture
async def run(monkeypatch):
    async with serve_run(monkeypatch, policy_model=ScriptedModel, agent=(AtroposEnv, BLOCK)) as served:
        yield served


async def score_with_library_alone(monkeypatch, folder: Path, environment: str, group_size: int) -> list[list[float]]:
    """Return the scores of every group that the library keeps, as its own command `process` writes them."""
    monkeypatch.setenv("ATROPOS_ALLOW_DUMMY_MANAGED_SERVER", "1")
    cls, output = load_class(environment), folder / "groups.jsonl"
    own, _ = cls.config_init()
    settings = {
        "tokenizer_name": str(provide_tokenizer()),
        "data_path_to_save_groups": str(output),
        "ensure_scores_are_not_same": False,
    }
    async with serve_run(monkeypatch, policy_model=ScriptedModel) as run:
        url = f"{run.urls['policy_model']}/v1"
        server = APIServerConfig(base_url=url, api_key="-", health_check=False)
        env = cls(type(own)(**{**own.model_dump(), **settings}), [server])
        env.n_groups_to_process, env.group_size_to_process = EPISODES, group_size
        await env.process_manager()
    return [json.loads(line)["scores"] for line in output.read_text().splitlines()]


async def post(run: ServedRun, row: dict[str, Any]) -> Any:
    return await run.client.post("agent", "/run", json=row)


async def play(run: ServedRun, row: dict[str, Any]) -> dict[str, Any]:
    answer = await post(run, row)
    assert answer.status == 200, answer.headers.get("x-nemo-gym-failure")
    return await answer.json()


async def fail(run: ServedRun, environment: str, **fields: Any) -> dict[str, Any]:
    row = {"responses_create_params": {"input": []}, "environment": environment, "item_index": 0, **fields}
    answer = await post(run, row)
    assert answer.status != 200
    return json.loads(answer.headers["x-nemo-gym-failure"])


def write_environment(folder: Path, body: str, more: str = "", before: str = "") -> str:
    path = folder / "env.py"
    path.write_text(
        f"import asyncio, time\n{before}"
        "from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataItem\n"
        "from atroposlib.envs.server_handling.server_baseline import ServerBaseline\n"
        "class Env(BaseEnv):\n"
        "    @classmethod\n"
        "    def config_init(cls): return BaseEnvConfig(tokenizer_name='bytes'), ServerBaseline()\n"
        "    async def setup(self): pass\n"
        "    async def get_next_item(self): return {'text': 'hello'}\n"
        "    async def evaluate(self): pass\n"
        "    async def ask(self, text='hello'):\n"
        "        return await self.server.chat_completion(messages=[{'role': 'user', 'content': text}])\n"
        "    async def collect_trajectory(self, item):\n"
        f"        {body}\n"
        "        return ScoredDataItem(tokens=[1], masks=[1], scores=score), []\n"
        f"{more}"
    )
    return f"{path}:Env"


# --- the library's scores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "levels"),
    [(ADD, {1.0, 0.5, 1 / 3, 0.25, -1.0}), (GUESS, {1 - turn / 6 for turn in range(4)} | {0.0})],
)
async def test_rewards_are_those_of_the_library(monkeypatch, tmp_path, run, environment, levels):
    played = await asyncio.gather(*(play(run, row) for row in make_rows(environment, EPISODES, 0, {})))
    rewards = [row["reward"] for row in played]
    alone = await score_with_library_alone(monkeypatch, tmp_path, environment, group_size=1)
    assert [[reward] for reward in rewards] == alone
    assert len(rewards) == EPISODES
    assert levels <= set(rewards)


async def test_a_group_is_played_as_one_with_the_scores_of_the_library(monkeypatch, tmp_path, run):
    answers = await asyncio.gather(*(post(run, row) for row in make_rows(WORDS, 2 * EPISODES, 0, {})))
    played = [await answer.json() for answer in answers if answer.status == 200]
    dropped = [json.loads(answer.headers["x-nemo-gym-failure"]) for answer in answers if answer.status != 200]
    alone = await score_with_library_alone(monkeypatch, tmp_path, WORDS, group_size=4)
    scores = [sorted(row["runner_info"]["scores"][0]) for row in played]
    assert scores[:EPISODES] == [sorted(group) for group in alone]
    assert [row["reward"] for row in played] == [pytest.approx(sum(group) / 4, abs=1e-15) for group in scores]
    assert all(row["model_calls"] == 4 for row in played)
    assert all(row["runner_metrics"]["best_score"] == group[-1] for row, group in zip(played, scores, strict=True))
    assert dropped
    assert {failure["kind"] for failure in dropped} == {"verifier"}
    assert all("returned no score for the item" in failure["message"] for failure in dropped)


async def test_an_environment_that_scores_each_trajectory_is_played_in_groups_where_the_row_says_so(run):
    (row,) = make_rows(ADD, 1, 0, {"environment_config": {"group_size": 3}})
    played = await play(run, row)
    assert played["model_calls"] == len(played["runner_info"]["scores"][0]) == 3


async def test_environments_may_be_opened_at_the_same_time(run, tmp_path):
    provide_tokenizer.cache_clear()
    slow = write_environment(tmp_path, "await self.ask(); score = 0.5", before="time.sleep(0.3)\n")
    opened = [(ADD, {}), (GUESS, {}), (slow, {"group_size": 1}), (slow, {"group_size": 2})]
    rows = [
        {"responses_create_params": {"input": []}, "environment": name, "environment_config": config, "item_index": 0}
        for name, config in opened
    ]
    played = await asyncio.gather(*(play(run, row) for row in rows))
    assert [row["reward"] for row in played[2:]] == [0.5, 0.5]


async def test_a_row_may_bring_its_item(run):
    row = {"responses_create_params": {"input": []}, "environment": ADD, "item": [20, 22]}
    asked = (await play(run, row))["responses_create_params"]["input"]
    assert asked[-1]["content"] == "What is 20 + 22?"


# --- the model --------------------------------------------------------------------------------------------------------


async def test_a_row_holds_the_conversation(run):
    rows = [await play(run, row) for row in make_rows(GUESS, 3, 0, {})]
    assert any(row["model_calls"] > 2 for row in rows)
    for row in rows:
        roles = [item["role"] for item in row["response"]["output"]]
        assert roles == ["assistant", "user"] * (row["model_calls"] - 1) + ["assistant"]
        assert row["response"]["usage"]["total_tokens"] == 10 * row["model_calls"]


async def test_sampling_settings_of_a_row_go_before_those_of_the_environment(run):
    (row,) = make_rows(ADD, 1, 0, {})
    model = run.servers["policy_model"]
    await play(run, row)
    await play(run, {**row, "responses_create_params": {"input": [], "max_output_tokens": 5, "temperature": 0.25}})
    assert [(body["max_tokens"], body["temperature"]) for body in model._bodies] == [(32, 1.0), (5, 0.25)]


async def test_a_managed_server_counts_the_tokens_that_the_model_wrote(run, tmp_path):
    environment = write_environment(
        tmp_path,
        "async with self.server.managed_server() as managed:\n"
        "            asked = [{'role': 'user', 'content': 'a'}]\n"
        "            first = (await managed.chat_completion(messages=asked)).choices[0].message.content\n"
        "            asked += [{'role': 'assistant', 'content': first}, {'role': 'user', 'content': 'b'}]\n"
        "            await managed.chat_completion(messages=asked)\n"
        "            (node,) = managed.get_state()['nodes']\n"
        "            score = sum(token != -100 for token in node.masked_tokens) + len(node.tokens) / 1000",
    )
    row = await play(run, {"responses_create_params": {"input": []}, "environment": environment, "item_index": 0})
    whole = "<user\na>\n<assistant\nheard 1>\n<user\nb>\n<assistant\nheard 3"  # < and > are one token each, as all are
    assert row["reward"] == len("heard 1heard 3") + len(whole) / 1000


async def test_a_written_tokenizer_is_one_of_the_library(run, tmp_path):
    write_tokenizer(tmp_path)
    (row,) = make_rows(ADD, 1, 0, {"environment_config": {"tokenizer_name": str(tmp_path)}})
    assert (await play(run, row))["model_calls"] == 1


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_an_environment_that_raises_fails_by_name(run, tmp_path):
    environment = write_environment(tmp_path, "await self.ask(); score = {}['judge']")
    failure = await fail(run, environment)
    assert failure["kind"] == "agent"
    assert "KeyError: 'judge'" in failure["message"]


@pytest.mark.parametrize("hang", ["await asyncio.sleep(1000)", "time.sleep(1000)", "while True: pass"])
async def test_an_environment_that_hangs_fails_by_name_and_the_next_one_plays(monkeypatch, run, tmp_path, hang):
    environment = write_environment(tmp_path, f"await self.ask()\n        {hang}")
    with monkeypatch.context() as patch:
        patch.setattr(run.servers["agent"].config, "rollout_timeout_s", 3)
        assert (await fail(run, environment))["kind"] == "timeout"
    (other,) = make_rows(ADD, 1, 0, {})
    assert (await play(run, other))["model_calls"] == 1


async def test_a_score_that_an_environment_makes_of_a_broken_model_is_a_failure(run, tmp_path):
    body = "score = 0.0\n        try: await self.ask('break')\n        except Exception: pass"
    failure = await fail(run, write_environment(tmp_path, body))
    assert failure["kind"] == "model_endpoint"
    assert "although one of its model calls had failed" in failure["message"]


@pytest.mark.parametrize("score", ["float('nan')", "float('inf')", "'good'", "[1.0, 2.0]", "None"])
async def test_a_score_that_is_no_number_is_a_failure(run, tmp_path, score):
    failure = await fail(run, write_environment(tmp_path, f"await self.ask(); score = {score}"))
    assert failure["kind"] == "verifier"


async def test_a_text_completion_is_refused_with_what_works(run, tmp_path):
    failure = await fail(run, write_environment(tmp_path, "await self.server.completion(prompt='x')"))
    assert "server.completion" in failure["message"]
    assert "hint: it must call `chat_completion`" in failure["message"]


async def test_a_score_without_a_model_is_a_failure(run, tmp_path):
    failure = await fail(run, write_environment(tmp_path, "score = 1.0"))
    assert "none of its calls reached the model" in failure["message"]


async def test_a_setup_that_fails_is_tried_again(run, tmp_path):
    flag = tmp_path / "there"
    environment = write_environment(
        tmp_path,
        "await self.ask(); score = 1.0",
        f"    async def setup(self): open({str(flag)!r})\n",
    )
    assert "FileNotFoundError" in (await fail(run, environment))["message"]
    flag.touch()
    row = {"responses_create_params": {"input": []}, "environment": environment, "item_index": 0}
    assert (await play(run, row))["reward"] == 1.0


async def test_a_tokenizer_that_is_not_there_is_a_failure_with_a_hint(run):
    failure = await fail(run, ADD, environment_config={"tokenizer_name": "no/such_folder/anywhere"})
    assert "tokenizer_name" in failure["message"]
    assert "`bytes`, which needs no download" in failure["message"]


async def test_an_item_that_is_not_there_is_a_failure_with_a_hint(run):
    failure = await fail(run, ADD, item_index=60)
    assert "asks for item 60" in failure["message"]
    assert "which has only 60" in failure["message"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        (f"{FOLDER}/guess_number.py:GuesNumber", f"closest: {GUESS}\n"),
        (f"{FOLDER}/add_numbrs.py:AddNumbers", f"closest: {ADD}, "),
        ("no_such_package.env:Env", "closest: responses_api_agents/"),
    ],
)
async def test_an_environment_that_is_not_there_is_a_failure_that_names_others(run, path, near):
    assert near in (await fail(run, path))["message"]
    with pytest.raises(GymError, match="there is no environment"):
        make_rows(path, 1, 0, {})


def test_every_listed_environment_can_be_loaded():
    assert [load_class(entry["id"]).name for entry in list_environments()] == [
        "add_numbers",
        "guess_number",
        "short_words",
    ]
