# SPDX-License-Identifier: Apache-2.0
"""Run by test_real_trainers.py with verl's Python: verl's own worker plays a batch with our agent loop."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

import nemo_gym.integrations.verl
from nemo_gym.errors import RolloutFailure
from nemo_gym.integrations.live import LiveGym, write_row
from nemo_gym.integrations.verl import AGENT_NAME, write_dataset
from tests.integrations.real.hf_tokenizer import Script, make_tokenizer
from tests.support.live_gym import CONFIG, check_sequence, read_task, solve

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
COUNT, PROMPT, RESPONSE = 3, 1500, 1500


class Client:
    """verl's client of its engines, with a script for each rollout behind it."""

    def __init__(self, tokenizer, reply):
        self.tokenizer, self.reply, self.scripts = tokenizer, reply, {}

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        assert sampling_params["logprobs"]
        script = self.scripts.setdefault(request_id, Script(self.tokenizer, self.reply))
        ids, log_probs = script.write(prompt_ids, sampling_params.get("max_new_tokens"))
        return TokenOutput(token_ids=ids, log_probs=log_probs, extra_fields={"global_steps": 5})


def make_config(folder):
    """verl's whole config, with our agent loop in it."""
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    model = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": len(tokenizer), **SMALL}
    (folder / "config.json").write_text(json.dumps({**model, "num_key_value_heads": 2}))
    loops = folder / "agent_loops.yaml"
    target = "nemo_gym.integrations.verl.GymAgentLoop"
    loops.write_text(f"- name: {AGENT_NAME}\n  _target_: {target}\n  config_paths: [{CONFIG}]\n  attempts: 1\n")
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer/config"), version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={folder}",
                f"{rollout}.name=vllm",
                f"data.max_prompt_length={PROMPT}",
                f"data.max_response_length={RESPONSE}",
                f"{rollout}.calculate_log_probs=true",
                f"{rollout}.agent.agent_loop_config_path={loops}",
            ],
        )


def make_batch(row, config, tokenizer):
    """A batch as verl's own dataset makes it of our file."""
    with tempfile.TemporaryDirectory() as folder:
        rows, output = Path(folder) / "rows.jsonl", Path(folder) / "train.parquet"
        rows.write_text(f"{write_row(row)}\n" * COUNT)
        assert write_dataset(rows, output) == COUNT
        dataset = RLHFDataset(str(output), tokenizer, config.data)
        batch = DataProto.from_single_dict(collate_fn([dataset[place] for place in range(COUNT)]))
    batch = batch.pop(non_tensor_batch_keys=["raw_prompt", "agent_name", "extra_info", "index", "data_source"])
    batch.meta_info["global_steps"] = 1
    return batch


async def main():
    row = read_task()
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(Path(folder))
        worker = AgentLoopWorker(config, Client(None, solve(row)))
    client = worker.llm_client
    client.tokenizer = worker.tokenizer
    batch = make_batch(row, config, worker.tokenizer)
    output = await worker.generate_sequences(batch)
    assert len(client.scripts) == COUNT
    by_sequence = {}
    for script in client.scripts.values():
        given, written, _ = script.calls[-1]
        by_sequence[(*given, *written)] = script
    for place in range(COUNT):
        one = output.batch[place]
        prompt_mask, response_mask = one["attention_mask"][:PROMPT].bool(), one["attention_mask"][PROMPT:].bool()
        prompt, response = one["prompts"][prompt_mask].tolist(), one["responses"][response_mask].tolist()
        mask = one["response_mask"][response_mask].tolist()
        script = by_sequence[(*prompt, *response)]
        expected = [log_prob for _, _, log_probs in script.calls for log_prob in log_probs]
        by_model = one["response_mask"].bool()
        assert np.allclose(one["rollout_log_probs"][by_model].numpy(), expected)
        check_sequence(script, prompt, response, mask, fill(mask, expected))
        assert one["rm_scores"].sum().item() == 1.0
    assert output.non_tensor_batch["__num_turns__"].tolist() == [2 * len(script.calls)] * COUNT
    assert output.non_tensor_batch["branches"].tolist() == [1] * COUNT
    assert output.non_tensor_batch["min_global_steps"].tolist() == [5] * COUNT

    async def fail(*_, **__):
        raise RuntimeError("the engine is away")

    client.generate = fail
    with pytest.raises(RolloutFailure, match="the engine is away"):
        await worker.generate_sequences(batch)
    async with await LiveGym.of_process([CONFIG]) as gym:
        head = gym.client.global_config_dict["head_server"]
        score = get_custom_reward_fn(name_reward_function(config, f"{head['host']}:{head['port']}"))
        extra_info = batch.non_tensor_batch["extra_info"][0]
        reward = await score(data_source="", solution_str="No tool is called.", ground_truth="", extra_info=extra_info)
        assert reward == 0.0
    sys.stdout.write(f"verl {verl.__version__}: {COUNT} rollouts, {len(script.calls)} turns each, exact\n")


def name_reward_function(config, head_server):
    """verl's config with `+reward.custom_reward_function.…` on its command line."""
    function = {"path": nemo_gym.integrations.verl.__file__, "name": "compute_score"}
    OmegaConf.set_struct(config, False)
    named = {"custom_reward_function": {**function, "reward_kwargs": {"head_server": head_server}}}
    return OmegaConf.merge(config, {"reward": named})


def fill(mask, log_probs):
    left = iter(log_probs)
    return [next(left) if by_model else 0.0 for by_model in mask]


asyncio.run(main())
