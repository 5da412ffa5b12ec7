#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Play the five example tasks of an environment from end to end, with recorded replies instead of a live model."""

import asyncio
import json
import sys
from pathlib import Path

from omegaconf import OmegaConf

from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict, set_global_config_dict
from nemo_gym.launch import serve_config
from nemo_gym.rollout_collection import RolloutCollectionHelper

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = "example_multi_step"
DATA = ROOT / "resources_servers" / ENVIRONMENT / "data"


def main() -> int:
    set_global_config_dict(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.create(
                {
                    "config_paths": [
                        f"resources_servers/{ENVIRONMENT}/configs/{ENVIRONMENT}.yaml",
                        "responses_api_models/replay_model/configs/replay_model.yaml",
                    ],
                    "policy_model": {
                        "responses_api_models": {
                            "replay_model": {"rollouts_jsonl_fpath": str(DATA / "example_rollouts.jsonl")}
                        }
                    },
                }
            )
        )
    )
    rows = [json.loads(line) for line in (DATA / "example.jsonl").read_text().splitlines()]
    print(f"playing the {len(rows)} example tasks of {ENVIRONMENT}; the model's replies are recorded ones")
    rewards = asyncio.run(play(rows))
    print(f"mean reward: {sum(rewards) / len(rewards):.3f} over {len(rewards)} rollouts of {len(rows)} requested")
    print("next: put your model into env.yaml and run `gym env start` (see README.md)")
    return 0 if len(rewards) == len(rows) else 1


async def play(rows: list[dict]) -> list[float]:
    rewards = []
    async with serve_config(get_global_config_dict()) as served:
        print("\n".join(f"  {server.process_name}: {server.url}" for server in served.servers))
        examples = [
            {
                **row,
                "_ng_task_index": index,
                "_ng_rollout_index": 0,
                "agent_ref": {"name": f"{ENVIRONMENT}_simple_agent"},
            }
            for index, row in enumerate(rows)
        ]
        for finished in RolloutCollectionHelper().run_examples(examples):
            row, result = await finished
            rewards.append(result["reward"])
            calls = sum(item["type"] == "function_call" for item in result["response"]["output"])
            print(f"  task {row['_ng_task_index']}: reward {result['reward']:.1f} after {calls} tool calls")
    return rewards


if __name__ == "__main__":
    sys.exit(main())
