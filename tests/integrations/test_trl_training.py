# SPDX-License-Identifier: Apache-2.0
"""TRL itself on our rollouts, with a tiny model: a failed member of a group, and a step with real servers."""

import copy
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym import global_config
from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, GlobalConfigDictParserConfig
from nemo_gym.integrations import trl
from nemo_gym.integrations.lent_models import lend_model, take_back_model
from nemo_gym.trajectories import TrainableRollout
from responses_api_models.transformers_model.tests.conftest import make_model, make_tokenizer
from tests.support.small_servers import free_port

torch = pytest.importorskip("torch", reason="needs torch: `make train-test` has an environment with it")
pytest.importorskip("trl", reason="needs trl: `make train-test` has an environment with it")

pytestmark = [
    pytest.mark.timeout(600),
    # TRL 1.16 uses names that transformers 5.23 has replaced.
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning"),
]
GROUP = 4
COLUMNS = ("prompt_ids", "completion_ids", "logprobs")


def make_task(text: str, **fields: Any) -> dict[str, Any]:
    asked = {"input": [{"role": "user", "content": text}]}
    agent = {"name": "first_steps_simple_agent"}
    return {"responses_create_params": asked, "category": "letters", "answers": ["a"], "agent_ref": agent, **fields}


def make_trainer(folder, model, rollouts, tasks, **fields: Any):
    from trl import GRPOConfig, GRPOTrainer

    args = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=GROUP * len(tasks),
        num_generations=GROUP,
        max_completion_length=6,
        max_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        gradient_checkpointing=False,
        shuffle_dataset=False,
        **fields,
    )
    return GRPOTrainer(
        model=model,
        args=args,
        train_dataset=trl.make_dataset(tasks),
        processing_class=make_tokenizer(),
        reward_funcs=trl.reward_func,
        rollout_func=rollouts,
    )


def play(rewards: list[float | None]) -> list[TrainableRollout]:
    """Rollouts with these rewards; None: it failed."""
    return [
        TrainableRollout.from_row({"_ng_failure": {"kind": "model_endpoint"}})
        if reward is None
        else TrainableRollout.from_row(
            {
                "reward": reward,
                "response": {
                    "output": [
                        {
                            "prompt_token_ids": [5, 6, 7],
                            "generation_token_ids": [10 + number, 20, 1],
                            "generation_log_probs": [-1.0, -1.0, -1.0],
                        }
                    ]
                },
            }
        )
        for number, reward in enumerate(rewards)
    ]


def train_once(folder, rewards: list[float | None], tasks: int = 1, **fields: Any):
    """Train one step on rollouts with these rewards; return the advantages that TRL gave them, and the trainer."""
    rollouts = play(rewards)
    trainer = make_trainer(
        folder, make_model(), lambda prompts, trainer: trl.make_entries(rollouts, 1), [make_task("?")] * tasks, **fields
    )
    trainer.train()
    return list(trainer._logs["advantages"]), trainer


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo", "dr_grpo"])
def test_a_failed_member_is_no_zero_in_the_baseline_of_its_group(tmp_path, loss_type):
    rewards = [1.0, 1.0, None, 0.0]
    advantages, trainer = train_once(tmp_path, rewards, loss_type=loss_type, scale_rewards="none")
    assert advantages == pytest.approx([1 / 3, 1 / 3, 0.0, -2 / 3])
    (logged,) = [line for line in trainer.state.log_history if "reward" in line]
    assert (logged["reward"], logged["gym/failed"]) == (pytest.approx(2 / 3), 0.25)


def test_a_failed_member_moves_no_weight(tmp_path):
    """Three rollouts teach the same whether a fourth failed or not, by its tokens and by its reward."""
    _, with_failure = train_once(tmp_path, [1.0, 0.0, 1.0, None], scale_rewards="none")
    rollouts = play([1.0, 0.0, 1.0, 2 / 3])  # a reward at the baseline has no advantage either

    def without_its_tokens(prompts, trainer):
        entries = trl.make_entries(rollouts, 1)
        entries["env_mask"][3] = [0, 0, 0]
        return entries

    other = make_trainer(tmp_path, make_model(), without_its_tokens, [make_task("?")], scale_rewards="none")
    other.train()
    for mine, theirs in zip(with_failure.model.parameters(), other.model.parameters(), strict=True):
        assert mine.detach().numpy() == pytest.approx(theirs.detach().numpy(), abs=1e-6)


def test_a_group_of_failures_alone_teaches_nothing_and_harms_nothing(tmp_path):
    advantages, trainer = train_once(tmp_path, [None] * GROUP + [1.0, 0.0, 0.0, 0.0], tasks=2)
    assert advantages[:GROUP] == [0.0] * GROUP
    assert all(weight.isfinite().all() for weight in trainer.model.parameters())


def test_the_weights_that_are_trained_play_the_rollouts_on_real_servers(monkeypatch, tmp_path):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    model, tokenizer = make_model(), make_tokenizer()
    lend_model("policy", model, tokenizer)
    given = {
        "config_paths": [
            "resources_servers/first_steps/configs/first_steps.yaml",
            "responses_api_models/transformers_model/configs/transformers_model_for_training.yaml",
        ],
        HEAD_SERVER_KEY_NAME: {"host": "127.0.0.1", "port": free_port()},
    }
    tasks = [make_task("First letter of apple?"), make_task("First letter of an axe?")]
    servers = RunHelper()
    servers.start(
        GlobalConfigDictParserConfig(
            dotenv_path=tmp_path / "env.yaml", initial_global_config_dict=DictConfig(given), skip_load_from_cli=True
        )
    )
    rollouts, seen = trl.rollout_func(tasks), []

    def watch(prompts, trainer):
        entries = rollouts(prompts, trainer)
        seen.append((prompts, entries))
        return entries

    before = copy.deepcopy(model)
    try:
        trainer = make_trainer(tmp_path, model, watch, tasks)
        trainer.train()
    finally:
        rollouts.close()
        servers.shutdown()
        take_back_model("policy")
    ((prompts, entries),) = seen
    assert len(prompts) == len(entries["prompt_ids"]) == 2 * GROUP
    for prompt, prompt_ids, said in zip(prompts, entries["prompt_ids"], entries["completion_ids"], strict=True):
        assert tokenizer.decode(prompt_ids) == f"u:{prompt[0]['content']}|a:"
        assert 1 <= len(said) <= 6  # the trainer's longest completion
    assert set(entries["gym_reward"]) <= {0.0, 1.0}
    assert entries["env_mask"] == [[1] * len(said) for said in entries["completion_ids"]]
    for prompt_ids, said, log_probs in zip(*(entries[key] for key in COLUMNS), strict=True):
        with torch.no_grad():
            logits = before(input_ids=torch.tensor([prompt_ids + said])).logits[0, len(prompt_ids) - 1 : -1]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(said)[:, None])[:, 0]
        assert log_probs == pytest.approx(expected.tolist(), abs=1e-4)
    assert trainer.state.global_step == 1
