# SPDX-License-Identifier: Apache-2.0
"""`gym dataset render`: fill a prompt into raw rows, to see or keep what a model would be sent."""

import sys
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import Field

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._data.render import render_rows
from nemo_gym.cli import render as screen
from nemo_gym.cli.settings import validated
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
from nemo_gym.prompt import apply_prompt_to_row, load_prompt_config


class MaterializePromptsConfig(BaseNeMoGymCLIConfig):
    """Apply a prompt template to raw rows: JSONL with `responses_create_params.input` filled in."""

    input_jsonl_fpath: str = Field(description="The raw rows, without `responses_create_params.input`.")
    prompt_config: str = Field(description="YAML prompt with a `user` and an optional `system` template.")
    output_jsonl_fpath: str = Field(description="Where the rows with their prompts go.")


def render(overrides: list[str]) -> int:
    """Fill the prompt into every row; 1, and nothing written, if one of them does not fit."""
    sys.argv[1:] = overrides
    plain: Any = OmegaConf.to_container(
        GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(offline=True)), resolve=True
    )
    config = validated(MaterializePromptsConfig, plain)
    prompt = load_prompt_config(config.prompt_config)
    source = _resolve_under_cwd_or_install(config.input_jsonl_fpath)
    count = render_rows(
        source,
        Path(config.output_jsonl_fpath),
        lambda row: apply_prompt_to_row(prompt, row, config.prompt_config),
    )
    screen.data(f"Materialized {count} rows to {config.output_jsonl_fpath}")
    return 0
