# SPDX-License-Identifier: Apache-2.0
"""`gym dataset render`: fill a prompt into raw rows, to see or keep what a model would be sent."""

from pydantic import Field

from nemo_gym.cli import render as screen
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.prompt import materialize_prompts


class MaterializePromptsConfig(BaseNeMoGymCLIConfig):
    """Apply a prompt template to raw rows: JSONL with `responses_create_params.input` filled in."""

    input_jsonl_fpath: str = Field(description="The raw rows, without `responses_create_params.input`.")
    prompt_config: str = Field(description="YAML prompt with a `user` and an optional `system` template.")
    output_jsonl_fpath: str = Field(description="Where the rows with their prompts go.")


def render(overrides: list[str]) -> int:
    """Fill the prompt into every row; 1, and nothing written, if one of them does not fit."""
    config = read_settings(MaterializePromptsConfig, parse_config(overrides))
    count = materialize_prompts(config.input_jsonl_fpath, config.prompt_config, config.output_jsonl_fpath)
    screen.data(f"Materialized {count} rows to {config.output_jsonl_fpath}")
    return 0
