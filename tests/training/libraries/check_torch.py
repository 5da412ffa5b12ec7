# SPDX-License-Identifier: Apache-2.0
"""Run in an environment with torch, TRL, verl, OpenRLHF and Atropos: each reads what was exported for it."""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Optional

import torch
from datasets import load_dataset
from definitions import take
from pydantic import BaseModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

FOLDER = Path(sys.argv[1])
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }} {% endfor %}"
    "{% for message in messages %}{{ message.role }} : {{ message.content }} "
    "{% for call in message.tool_calls or [] %}{{ call.function.name }} {{ call.function.arguments | tojson }} "
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant : {% endif %}"
)


def read(name):
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def make_tokenizer():
    words = ["<pad>", "<eos>", "<unk>", "assistant", "user", "system", "tool", "weather", "city", "Bern", "warm", "is"]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )


def make_model():
    """A model that has a folder: trainers look there for a second copy to refer to."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    folder = FOLDER / "model"
    LlamaForCausalLM(LlamaConfig(vocab_size=128, pad_token_id=0, eos_token_id=1, **sizes)).save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder)


def options(name):
    return {
        "output_dir": str(FOLDER / name),
        "max_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def check_sft():
    dataset = load_dataset("json", data_files=str(FOLDER / "sft.jsonl"), split="train")
    [call] = dataset[0]["messages"][2]["tool_calls"]
    assert call["function"]["arguments"] == {"city": "Bern"}
    config = SFTConfig(**options("sft-run"), per_device_train_batch_size=2)
    trainer = SFTTrainer(make_model(), args=config, train_dataset=dataset, processing_class=make_tokenizer())
    assert trainer.train().training_loss > 0


def check_dpo():
    dataset = load_dataset("json", data_files=str(FOLDER / "dpo.jsonl"), split="train")
    assert {"prompt", "chosen", "rejected", "tools"} <= set(dataset.column_names)
    config = DPOConfig(**options("dpo-run"), per_device_train_batch_size=2)
    trainer = DPOTrainer(make_model(), args=config, train_dataset=dataset, processing_class=make_tokenizer())
    assert trainer.train().training_loss > 0


def check_grpo():
    """The exported rollouts are what a rollout_func returns: one step of training on them."""
    dataset = load_dataset("json", data_files=str(FOLDER / "trl.jsonl"), split="train")
    records = read("trl")
    chosen = records[:2]
    seen = []

    def replay(prompts, trainer):
        assert len(prompts) == len(chosen)
        fields = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        return {**{name: [one[name] for one in chosen] for name in fields}, "score": [one["reward"] for one in chosen]}

    def score(score, **_):
        seen.append(score)
        return score

    config = GRPOConfig(
        **options("grpo-run"), per_device_train_batch_size=2, num_generations=2, max_completion_length=16
    )
    trainer = GRPOTrainer(
        make_model(),
        reward_funcs=score,
        args=config,
        train_dataset=dataset.select([0]),
        processing_class=make_tokenizer(),
        rollout_func=replay,
    )
    trainer.train()
    assert seen == [[one["reward"] for one in chosen]]


def check_verl():
    _, output = take(
        "verl/experimental/agent_loop/agent_loop.py",
        ["AgentLoopMetrics", "AgentLoopOutput"],
        BaseModel=BaseModel,
        Optional=Optional,
        Any=Any,
        torch=torch,
    )
    rows = read("verl")
    for row in rows:
        tensors = output.model_validate(row).as_dict()
        assert tensors["responses"].shape == tensors["response_mask"].shape == tensors["rollout_log_probs"].shape
        assert set(row) <= set(output.model_fields)
    table = load_dataset("parquet", data_files=str(FOLDER / "verl.parquet"), split="train")
    assert table["response_ids"][:] == [row["response_ids"] for row in rows]


def check_openrlhf():
    [process] = take(
        "openrlhf/trainer/ppo_utils/samples_generator.py",
        ["_process_response_into_experience"],
        torch=torch,
        Experience=dict,
    )
    for row in read("openrlhf"):
        experience = process(None, row, max_len=64)
        wrote = sum(end - start for start, end in row["action_ranges"])
        assert experience["action_mask"].sum().item() == wrote
        assert experience["rollout_log_probs"].shape == experience["action_mask"].shape
        known = experience["rollout_log_probs"][experience["action_mask"].bool()]
        assert (known != 0).all()
        assert experience["rewards"].item() == row["reward"]


def check_atropos():
    from atroposlib.api.server import app
    from fastapi.testclient import TestClient

    with TestClient(app) as client:
        trainer = {"wandb_group": "g", "wandb_project": "p", "batch_size": 4, "max_token_len": 64}
        trainer |= {"checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1}
        assert client.post("/register", json=trainer).status_code == 200
        client.get("/batch")
        env = {"max_token_length": 64, "desired_name": "gym", "weight": 1.0, "group_size": 2}
        assert client.post("/register-env", json=env).status_code == 200
        for group in read("atropos"):
            reply = client.post("/scored_data", json=group)
            assert reply.status_code == 200, reply.text


for check in (check_sft, check_dpo, check_grpo, check_verl, check_openrlhf, check_atropos):
    check()
names = ("torch", "trl", "datasets", "transformers", "tokenizers", "verl", "openrlhf", "atroposlib")
print(" ".join(f"{name} {version(name)}" for name in names))
