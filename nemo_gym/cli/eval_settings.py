# SPDX-License-Identifier: Apache-2.0
"""What `gym eval run` is asked to do: its config keys, and the input file that they come to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import Field, PositiveFloat, field_validator

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._data.splits import SplitDataset, write_split
from nemo_gym._rollouts.expand import ExpandSettings
from nemo_gym._rollouts.types import Row
from nemo_gym.cli.settings import validated
from nemo_gym.config_types import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.prompt import apply_prompt_to_row, load_prompt_config
from nemo_gym.rollout_collection import RolloutCollectionConfig
from nemo_gym.skills import load_skill_directory

Split = Literal["train", "validation", "example", "benchmark"]
_OLDER_PARAMS = {"max_tokens": "max_output_tokens"}


class EvalRunConfig(RolloutCollectionConfig):
    """Collect rollouts: start the servers of a config, or use those that run, and play every task."""

    input_jsonl_fpath: str | None = Field(  # type: ignore[assignment]  # serving, the config's datasets will do
        default=None, description="The input tasks, in the form of a file path to a JSONL file."
    )
    split: Split | None = Field(default=None, description="Which datasets of the config to run, without an input.")
    no_serve: bool = Field(default=False, description="Use servers that run already.")
    rollout_timeout_seconds: PositiveFloat | None = Field(default=None, description="Deadline of one rollout.")
    allow_failures: str = Field(default="0", description="How many rollouts may fail: a number or a percentage.")
    max_failure_rate: float | None = Field(
        default=None, ge=0, le=1, description="Stop early when this share of the latest rollouts fails."
    )
    quiet: bool = Field(default=False, description="Show no progress.")
    json_summary: bool = Field(default=False, alias="json", description="Print the summary as JSON.")

    @field_validator("allow_failures", mode="before")
    @classmethod
    def _number_or_share(cls, value: Any) -> str:
        text = str(value)
        number = text.removesuffix("%")
        if not number.replace(".", "", 1).isdigit():
            raise ValueError(f"must be a number or a percentage, not {text!r}")
        return text

    def failures_allowed(self, requested: int) -> int:
        """How many of `requested` rollouts may fail."""
        if self.allow_failures.endswith("%"):
            return int(requested * float(self.allow_failures.removesuffix("%")) / 100)
        return int(float(self.allow_failures))

    def expand_settings(self, known_agents: list[str] | None) -> ExpandSettings:
        """How the input becomes rollouts."""
        overrides = {_OLDER_PARAMS.get(key, key): value for key, value in self.responses_create_params.items()}
        return ExpandSettings(
            agent_name=self.agent_name,
            limit=self.limit,
            repeats=self.num_repeats or 1,
            add_seed=self.num_repeats_add_seed,
            overrides=overrides,
            prompt=_prompt(self.prompt_config),
            skills_ref=load_skill_directory(self.skills.path).model_dump() if self.skills else None,
            known_agents=known_agents,
        )


def eval_run_config(config: DictConfig) -> EvalRunConfig:
    """The settings in a whole config."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return validated(EvalRunConfig, plain)


def input_of(settings: EvalRunConfig, config: DictConfig, notice: Callable[[str], None]) -> str:
    """The file to take tasks from: the one that was named, else the config's own datasets."""
    if settings.input_jsonl_fpath is not None:
        if settings.input_jsonl_fpath == "-":
            return settings.input_jsonl_fpath
        return str(_resolve_under_cwd_or_install(settings.input_jsonl_fpath))
    if settings.no_serve:
        raise ConfigError("which tasks? With --no-serve, name a file: --input tasks.jsonl")
    split = settings.split or "example"
    datasets = _datasets(config, split)
    if not datasets:
        raise ConfigError(f"the config has no {split} dataset.\nhint: name a file with --input, or another --split")
    output = Path(settings.output_jsonl_fpath)
    prepared = output.with_suffix("") / "preprocessed_datasets" / f"{split}.jsonl"
    count = write_split(datasets, prepared)
    if settings.split is None:
        notice(f"no --input and no --split: playing the {count} example rows of the config")
    return str(prepared)


def _datasets(config: DictConfig, split: Split) -> list[SplitDataset]:
    found = []
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        for dataset in instance.datasets or ():
            if dataset.type == split:
                path = _resolve_under_cwd_or_install(dataset.jsonl_fpath)
                found.append(SplitDataset(instance.name, dataset.name, path, dataset.num_repeats))
    return found


def _prompt(path: str | None) -> Callable[[Row], Row] | None:
    if path is None:
        return None
    prompt = load_prompt_config(path)
    return lambda row: apply_prompt_to_row(prompt, row, path)
