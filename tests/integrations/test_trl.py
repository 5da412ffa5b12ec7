# SPDX-License-Identifier: Apache-2.0
"""Rollouts as TRL asks for them: one entry for each prompt, exact tokens, and nothing of a failure in the baseline."""

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym import global_config
from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, GlobalConfigDictParserConfig
from nemo_gym.integrations import trl
from nemo_gym.integrations.playing import make_row
from nemo_gym.server_utils import BaseServerConfig
from nemo_gym.trajectories import TrainableRollout
from tests.support.small_servers import free_port

AGENT = {"name": "first_steps_simple_agent"}
END = 2


def played(reward: float = 1.0, turns: tuple[tuple[list[int], list[int]], ...] = (([1, 2], [3, 4]),), **fields: Any):
    items = [
        {"prompt_token_ids": prompt, "generation_token_ids": said, "generation_log_probs": [-0.5] * len(said)}
        for prompt, said in turns
    ]
    return TrainableRollout.from_row({"reward": reward, "response": {"output": items}, **fields})


def failed(kind: str = "verify") -> TrainableRollout:
    return TrainableRollout.from_row({"_ng_failure": {"kind": kind}})


def test_the_tokens_of_a_rollout_are_those_that_were_sampled():
    entries = trl.make_entries([played(0.25, (([1, 2], [3, 4]), ([1, 2, 3, 4, 9], [5])))], END)
    assert entries == {
        "prompt_ids": [[1, 2]],
        "completion_ids": [[3, 4, 9, 5]],
        "logprobs": [[-0.5, -0.5, 0.0, -0.5]],
        "env_mask": [[1, 1, 0, 1]],
        "gym_reward": [0.25],
        "gym_failure": [None],
        "gym_drift": ["clean"],
    }


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (failed(), "verify"),
        (played(0.0, mask_sample=True), "mask_sample"),
        (played(0.0, ()), None),
        (played(0.0, (([1, 2], []),)), None),
    ],
)
def test_a_rollout_without_anything_to_learn_from_is_masked_and_has_no_reward(bad, why):
    entries = trl.make_entries([played(1.0), bad], END)
    assert [column[1] for column in entries.values()][:6] == [[END], [END], [0.0], [0], None, why]
    assert entries["gym_reward"] == [1.0, None]
    assert trl.reward_func(**{key: entries[key] for key in ("gym_reward", "gym_drift")}) == [1.0, None]


def test_the_share_of_failed_and_forked_rollouts_is_logged():
    logged = {}
    forked = played(1.0, (([1, 2], [3]), ([7, 8], [9])))
    entries = trl.make_entries([played(), failed(), forked, failed()], END)
    trl.reward_func(**entries, log_metric=logged.__setitem__)
    assert logged == {"gym/failed": 0.5, "gym/forked": 0.25}
    assert entries["completion_ids"][2] == [9]  # the branch that ends with the answer


def test_a_batch_that_holds_nothing_to_learn_from_is_an_error_that_says_why():
    with pytest.raises(trl.CannotTrain, match=r"(?s)none of 3.*2 × verify\n1 × no token ids.*hint:.*return_token_id"):
        trl.make_entries([failed(), failed(), played(1.0, ())], END)


def test_prompts_name_their_tasks():
    task = {"responses_create_params": {"input": [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]}}
    assert trl.make_prompt(task, 3) == [{"role": "user", "content": "ab", "gym_task": 3}]
    assert trl.make_prompt({"responses_create_params": {"input": "Hello?"}}, 0)[0]["content"] == "Hello?"


def test_prompts_that_name_no_task_are_refused():
    func = trl.RolloutFunc([{}], None, {}, 1)
    trainer = SimpleNamespace(args=SimpleNamespace(temperature=1.0, top_p=1.0, max_completion_length=4))
    try:
        for prompt in ("text", [], [{"role": "user", "content": "?"}], [{"gym_task": 1}]):
            with pytest.raises(trl.CannotTrain, match=r"none of the 1 tasks(?s:.*)hint: .*make_dataset"):
                func([prompt], trainer)
    finally:
        func.close()


def test_params_of_the_trainer_replace_those_of_the_task():
    row = make_row({"responses_create_params": {"input": "?", "temperature": 0}, "x": 1}, (4, 2), {"temperature": 1.0})
    assert row == {
        "responses_create_params": {"input": "?", "temperature": 1.0},
        "x": 1,
        "_ng_task_index": 4,
        "_ng_rollout_index": 2,
    }


def test_a_missing_trl_is_named_with_its_version(monkeypatch):
    def find(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", find)
    with pytest.raises(trl.CannotTrain, match=r"made for TRL 1\.16\.\nhint: pip install 'trl==1\.16\.\*'"):
        trl.rollout_func([])


@pytest.mark.parametrize(("found", "warned"), [("1.16.3", False), ("2.0.0", True)])
def test_another_trl_is_warned_of(monkeypatch, caplog, found, warned):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    trl.require_trl()
    assert ("may not suit TRL 2.0.0" in caplog.text) is warned


@pytest.mark.local_model
def test_every_prompt_is_played_by_real_servers_and_failures_keep_their_places(monkeypatch, tmp_path):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    given = {
        "config_paths": [
            "resources_servers/first_steps/configs/first_steps.yaml",
            "responses_api_models/local_model/configs/local_model_for_training.yaml",
        ],
        HEAD_SERVER_KEY_NAME: {"host": "127.0.0.1", "port": free_port()},
    }
    tasks = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": "Say a word."}]},
            "category": "words",
            "agent_ref": AGENT,
            "answers": answers,
        }
        for answers in (["yes"], [])  # nothing can be verified without answers
    ]
    servers = RunHelper()
    servers.start(
        GlobalConfigDictParserConfig(
            dotenv_path=tmp_path / "env.yaml",
            initial_global_config_dict=DictConfig(given),
            skip_load_from_cli=True,
        )
    )
    func = trl.RolloutFunc(tasks, BaseServerConfig(**given[HEAD_SERVER_KEY_NAME]), {"max_output_tokens": 3}, 2)
    trainer = SimpleNamespace(
        args=SimpleNamespace(temperature=1.0, top_p=1.0, max_completion_length=99),
        processing_class=SimpleNamespace(eos_token_id=END, decode=str),
    )
    try:
        prompts = [trl.make_prompt(tasks[number], number) for number in (0, 1, 0, 1, 0)]
        entries = func(prompts, trainer)
    finally:
        func.close()
        servers.shutdown()
    assert [reward is None for reward in entries["gym_reward"]] == [False, True, False, True, False]
    assert entries["prompt_ids"][0] == entries["prompt_ids"][2] != entries["prompt_ids"][1] == [END]
    for ids, log_probs, mask in zip(entries["completion_ids"], entries["logprobs"], entries["env_mask"], strict=True):
        assert 1 <= len(ids) == len(log_probs) == len(mask) <= 3
    assert entries["env_mask"][1] == [0]
    assert set(entries["env_mask"][0]) == {1}
