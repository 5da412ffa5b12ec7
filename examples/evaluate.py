# SPDX-License-Identifier: Apache-2.0
"""Evaluate a model with the Python API: start servers, run tasks, read the scores, stop the servers.

    python examples/evaluate.py

It runs the example rows of `first_steps` with the demo's small model, which needs no API key
(`pip install 'nemo-gym[local]'`). To use your own model, put this into `env.yaml` in the current folder:

    policy_base_url: https://api.openai.com/v1
    policy_api_key: ${oc.env:OPENAI_API_KEY}
    policy_model_name: gpt-4.1

and run `python examples/evaluate.py openai_model`.
"""

import asyncio
import sys

from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper

ENVIRONMENT = "resources_servers/first_steps"
OUTPUT = "results/evaluate/rollouts.jsonl"


def start_servers(model: str) -> RunHelper:
    """Start the environment, its agent and a model; return when all of them are ready."""
    files = [f"{ENVIRONMENT}/configs/first_steps.yaml", f"responses_api_models/{model}/configs/{model}.yaml"]
    helper = RunHelper()
    config = OmegaConf.create({"config_paths": files})
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=config, skip_load_from_cli=True))
    return helper


async def collect() -> list[dict]:
    """Run every example row twice, and write the rollouts and their metrics."""
    settings = RolloutCollectionConfig(
        agent_name="first_steps_simple_agent",
        input_jsonl_fpath=str(PARENT_DIR / ENVIRONMENT / "data/example.jsonl"),
        output_jsonl_fpath=OUTPUT,
        num_repeats=2,
        responses_create_params={"temperature": 0.7, "max_output_tokens": 16},
    )
    return await RolloutCollectionHelper().run_from_config(settings)


def main() -> None:
    """Evaluate the model and print the results."""
    helper = start_servers(sys.argv[1] if len(sys.argv) > 1 else "local_model")
    try:
        rollouts = asyncio.run(collect())
    finally:
        helper.shutdown()
    for rollout in rollouts:
        print(f"task {rollout['_ng_task_index']}, rollout {rollout['_ng_rollout_index']}: reward {rollout['reward']}")
    print(f"mean reward of {len(rollouts)} rollouts: {sum(one['reward'] for one in rollouts) / len(rollouts):.2f}")
    print(f"rollouts and metrics: {OUTPUT}")


if __name__ == "__main__":
    main()
