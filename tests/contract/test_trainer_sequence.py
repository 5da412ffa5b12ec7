# SPDX-License-Identifier: Apache-2.0
"""What a trainer's actor does with the package, in the order in which it does it: NeMo RL is the pattern."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from omegaconf import DictConfig

from nemo_gym import global_config
from nemo_gym._servers.launching.launch import server_folder
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import BaseServerConfig
from tests.support.drifting_engine import DriftingEngine
from tests.support.fake_openai import FakeOpenAI, chat, of_json
from tests.support.nemo_rl import make_example, walk_as_nemo_rl_does
from tests.support.small_servers import free_port

ENVIRONMENT = "resources_servers/string_match/configs/string_match.yaml"
MODEL = "responses_api_models/vllm_model/configs/vllm_model.yaml"
DATA = server_folder("resources_servers", "string_match") / "data" / "example.jsonl"


class TrainerActor:
    """Owns the servers of a training run and plays the rollouts that the trainer asks for."""

    def __init__(self, folder: Path, engine_url: str, **more: Any) -> None:
        given = {
            "config_paths": [ENVIRONMENT, MODEL],
            "policy_base_url": [engine_url],
            "policy_api_key": "no key",
            "policy_model_name": "policy",
            "default_host": "127.0.0.1",
            HEAD_SERVER_KEY_NAME: {"host": "127.0.0.1", "port": free_port()},
            **more,
        }
        self.head = BaseServerConfig(**given[HEAD_SERVER_KEY_NAME])
        self.servers = RunHelper()
        self.servers.start(
            GlobalConfigDictParserConfig(
                dotenv_path=folder / "nemo_gym_env.yaml",  # the user has not written one
                initial_global_config_dict=DictConfig(given),
                skip_load_from_cli=True,
            )
        )
        self.collector = RolloutCollectionHelper()

    async def play(self, examples: list[dict[str, Any]]) -> tuple[dict[int, dict[str, Any]], list[Exception]]:
        """Return results by row, and what came of the others: the trainer sends them out again by what it is."""
        results, failed = {}, list[Exception]()
        for finished in self.collector.run_examples(examples, head_server_config=self.head):
            try:
                row, result = await finished
            except aiohttp.ClientResponseError as error:
                failed.append(error)
            else:
                results[row["_rowidx"]] = result
        return results, failed


@pytest.fixture(autouse=True)
def no_config(monkeypatch):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)


def examples(count: int) -> list[dict[str, Any]]:
    rows = [row for row, _ in zip(read_rows(DATA), range(count), strict=False)]
    return [{**row, "agent_ref": {"name": "string_match_simple_agent"}, "_rowidx": i} for i, row in enumerate(rows)]


async def test_an_actor_starts_plays_meets_a_failing_engine_and_shuts_down(tmp_path):
    async with FakeOpenAI(chat("one"), chat("two"), default=of_json({"error": "the engine sleeps"}, 400)) as engine:
        actor = await asyncio.to_thread(TrainerActor, tmp_path, engine.base_url)
        try:
            results, failed = await actor.play(examples(2))
            assert (sorted(results), failed) == ([0, 1], [])
            assert all(result["response"]["output"] and "reward" in result for result in results.values())
            results, failed = await actor.play(examples(2))
            actor.servers.poll()
        finally:
            await asyncio.to_thread(actor.servers.shutdown)
    assert results == {}
    assert [error.status for error in failed] == [500, 500]
    assert all(b"the engine sleeps" in error.response_content for error in failed)
    assert {error.__cause__.kind for error in failed} == {"model_endpoint"}


async def test_a_dry_run_inside_the_actors_loop_serves_nothing(tmp_path, capsys):
    actor = TrainerActor(tmp_path, "http://127.0.0.1:1/v1", dry_run=True)
    actor.servers.wait_for_dry_run_spinup()
    actor.servers.shutdown()
    assert "3 servers: 3 in one process with the head server" in capsys.readouterr().out
    assert actor.servers.server_instances == []


TOOL_ENVIRONMENT = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
TRAINED_MODEL = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
OTHER_TRAINER = """
import asyncio, json, sys
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import BaseServerConfig

async def play(head, examples):
    for finished in RolloutCollectionHelper().run_examples(examples, head_server_config=head):
        await finished

port, examples = json.load(sys.stdin)
asyncio.run(play(BaseServerConfig(host="127.0.0.1", port=port), examples))
"""


async def test_a_trainer_whose_process_is_killed_leaves_servers_that_the_next_one_can_use(tmp_path):
    rows = [make_example(number, "retokenizes", "example_single_tool_call_simple_agent") for number in range(4)]
    async with DriftingEngine() as engine:
        actor = await asyncio.to_thread(
            TrainerActor, tmp_path, engine.base_url, config_paths=[TOOL_ENVIRONMENT, TRAINED_MODEL]
        )
        try:
            engine.may_answer.clear()
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", OTHER_TRAINER, stdin=subprocess.PIPE)
            other.stdin.write(json.dumps([actor.head.port, rows]).encode())
            other.stdin.write_eof()
            await engine.wait_until_asked(len(rows))
            other.kill()
            assert await other.wait() < 0
            engine.may_answer.set()
            results, failed = await actor.play(rows)
        finally:
            await asyncio.to_thread(actor.servers.shutdown)
    assert (sorted(results), failed) == ([0, 1, 2, 3], [])
    for result in results.values():
        assert walk_as_nemo_rl_does(result)
        assert (result["reward"], result["_ng_token_drift"]["class"]) == (1.0, "realigned")
