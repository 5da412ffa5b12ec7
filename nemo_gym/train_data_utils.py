# SPDX-License-Identifier: Apache-2.0
"""Prepare the datasets of a config for training, or check them before they are contributed.

`TrainDataProcessor().run(config)` runs all the steps; each can also be called alone. `nemo_gym._data` reads, measures
and writes rows, and downloads them unless `FETCHERS` holds another function for the registry.
"""

import functools
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._authoring.config_catalog import name_benchmark
from nemo_gym._config.command_flags import Flag
from nemo_gym._data.collate import (
    Collation as Collation,
    MetricsConflict as MetricsConflict,
    Progress,
    collate,
    write_source_rows,
)
from nemo_gym._data.dataset_rows import OffendingRows as OffendingRows, Row
from nemo_gym._data.sources import (
    Fetch,
    MissingDatasets as MissingDatasets,
    Registry,
    Source as Source,
    fetch_missing,
    make_fetchers,
    raise_if_missing,
)
from nemo_gym._data.text_lengths import load_tokenizer
from nemo_gym._util.moved_names import find_names
from nemo_gym.config_types import BaseNeMoGymCLIConfig, BenchmarkDatasetConfig, ConfigError, DatasetConfig
from nemo_gym.global_config import CONFIG_PATHS_KEY_NAME, HF_TOKEN_KEY_NAME, GlobalConfigDictParser
from nemo_gym.prompt import apply_prompt_to_row, load_prompt_config

LOG = logging.getLogger(__name__)

FETCHERS: dict[str, Fetch] = {}
"""By registry (`huggingface` or `gitlab`), a function that writes a dataset's rows to a path, replacing ours."""

_SCOPE = {"train_preparation": ("train", "validation", "benchmark"), "example_validation": ("example",)}


class TrainDataProcessorConfig(BaseNeMoGymCLIConfig):
    """Check the datasets of a config, measure them and collate them."""

    output_dirpath: Annotated[str, Flag("--output-dir", short="-o")] = Field(
        description="Where the collated datasets and metrics go."
    )
    mode: Annotated[Literal["train_preparation", "example_validation"], Flag()] = Field(
        description="Whether to prepare train and validation data for training, or to check example data."
    )
    should_download: Annotated[bool, Flag("--download")] = Field(
        default=False, description="Download missing datasets from their registry."
    )
    data_source: Annotated[Registry, Flag()] = Field(
        default="huggingface", description="The registry to use if a dataset is in several."
    )
    overwrite_metrics_conflicts: Annotated[bool, Flag("--overwrite-conflicts")] = Field(
        default=False, description="Replace metrics files that the data no longer matches, instead of failing."
    )


class MetricStatistics(BaseModel):
    """Statistics of some numbers; a metrics file uses the aliases."""

    model_config = ConfigDict(populate_by_name=True)

    total: int = Field(alias="Total # non-null values")
    average: float = Field(alias="Average")
    min: float = Field(alias="Min")
    max: float = Field(alias="Max")
    standard_deviation: float = Field(alias="Standard deviation")


class DatasetMetrics(BaseModel):
    """A metrics file. The fields of the dataset's config, and one entry per row field, are extra fields."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    number_of_examples: int = Field(alias="Number of examples")
    number_of_tools: MetricStatistics = Field(alias="Number of tools")
    json_dumped_number_of_words: MetricStatistics = Field(alias="Json-dumped number of words (proxy for token count)")
    number_of_turns: MetricStatistics = Field(alias="Number of turns")
    temperature: MetricStatistics = Field(alias="Temperature")
    input_tokens: MetricStatistics | None = Field(default=None, alias="Input length in OpenAI tokens (o200k_base)")
    number_of_unique_create_params: int | None = Field(default=None, alias="Number of unique create params")
    number_of_unique_user_messages: int | None = Field(default=None, alias="Number of unique user messages")


@dataclass(frozen=True)
class DatasetScope:
    """The datasets of a config, and those of them that a mode covers."""

    servers: tuple[str, ...]
    agents_with_data: tuple[str, ...]
    agents_without_data: tuple[str, ...]
    sources: tuple[Source, ...]
    """The datasets in scope, in config order."""
    prepare_command: str = "gym eval prepare"
    """The command that writes the data of the benchmarks among them."""
    fetchers: Mapping[str, Fetch] = field(default_factory=dict, repr=False)
    """By registry, the function that downloads missing ones from it."""


class TrainDataProcessor(BaseModel):
    """Checks, measures and collates the datasets of a config."""

    def run(self, global_config_dict: DictConfig) -> Collation:
        """Run all steps; raise MissingDatasets, OffendingRows or MetricsConflict if the data is wrong."""
        config = TrainDataProcessorConfig.model_validate(OmegaConf.to_container(global_config_dict, resolve=True))
        scope = self.scope(config, global_config_dict)
        self.require(config, scope)
        collation = self.collate(config, scope)
        collation.raise_on_conflict()
        return collation

    def scope(self, config: TrainDataProcessorConfig, global_config_dict: DictConfig) -> DatasetScope:
        """Return the datasets that the mode covers; raise ConfigError if there is none."""
        scope = dataset_scope(global_config_dict, _SCOPE[config.mode])
        if not scope.sources:
            types = " or ".join(_SCOPE[config.mode])
            raise ConfigError(
                f"the config has no dataset of type {types}, which mode {config.mode!r} is about.\n"
                f"agents with other datasets: {', '.join(scope.agents_with_data) or 'none'}\n"
                f"hint: add one under `datasets:` of an agent, or choose the other mode"
            )
        return scope

    def require(
        self, config: TrainDataProcessorConfig, scope: DatasetScope, notice: Callable[[str], None] = LOG.info
    ) -> None:
        """Download missing files if the config says so; raise MissingDatasets if any are still missing."""
        if config.should_download:
            fetch_missing(scope.sources, config.data_source, {**scope.fetchers, **FETCHERS}, notice)
        raise_if_missing(scope.sources, prepare_command=scope.prepare_command)

    def collate(
        self, config: TrainDataProcessorConfig, scope: DatasetScope, progress: Progress | None = None
    ) -> Collation:
        """Check, measure and write everything; if a row is bad, write nothing and raise OffendingRows."""
        return collate(
            scope.sources,
            Path(config.output_dirpath),
            count_tokens=load_tokenizer(),
            overwrite_conflicts=config.overwrite_metrics_conflicts,
            progress=progress,
        )


def dataset_scope(global_config_dict: DictConfig, types: Collection[str], *, with_prompts: bool = True) -> DatasetScope:
    """Return the datasets of `types` in a config; without prompts, benchmark rows stay as they were prepared."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(global_config_dict)
    agents = [instance for instance in instances if instance.SERVER_TYPE == "responses_api_agents"]
    paths = global_config_dict.get(CONFIG_PATHS_KEY_NAME) or ()
    benchmarks = [f"--benchmark {name}" for path in paths if (name := name_benchmark(path))]
    benchmarks = benchmarks or [f"--config {path}" for path in paths]
    return DatasetScope(
        servers=tuple(instance.name for instance in instances),
        agents_with_data=tuple(instance.name for instance in instances if instance.datasets),
        agents_without_data=tuple(agent.name for agent in agents if not agent.datasets),
        sources=tuple(
            _source(instance.name, dataset, with_prompts=with_prompts)
            for instance in instances
            for dataset in instance.datasets or ()
            if dataset.type in types
        ),
        prepare_command=" ".join(["gym eval prepare", *benchmarks]),
        fetchers=make_fetchers(
            global_config_dict.get(HF_TOKEN_KEY_NAME),
            global_config_dict.get("mlflow_tracking_uri"),
            global_config_dict.get("mlflow_tracking_token"),
        ),
    )


def write_evaluation_input(
    scope: DatasetScope,
    path: Path,
    *,
    limit: int | None = None,
    check: bool = True,
    notice: Callable[[str], None] = LOG.info,
) -> int:
    """Write the rows of a scope's datasets, at most `limit`, into one file for an evaluation; return how many.

    Missing datasets are downloaded if a registry has them. Nothing is measured or written beside the datasets.
    """
    fetch_missing(scope.sources, "huggingface", {**scope.fetchers, **FETCHERS}, notice)
    raise_if_missing(scope.sources, prepare_command=scope.prepare_command)
    return write_source_rows(scope.sources, path, limit=limit, check=check)


def _source(agent: str, dataset: DatasetConfig | BenchmarkDatasetConfig, *, with_prompts: bool) -> Source:
    fill: Callable[[Row], Row] | None = None
    if with_prompts and isinstance(dataset, BenchmarkDatasetConfig) and (path := dataset.prompt_config) is not None:
        fill = functools.partial(apply_prompt_to_row, load_prompt_config(path), prompt_config_path=path)
    command = None
    if isinstance(dataset, DatasetConfig) and dataset.prepare_script:
        command = f"python {_data_path(dataset.prepare_script)} {dataset.type}"
    return Source(agent, dataset, _data_path(dataset.jsonl_fpath), fill, prepare_command=command)


def _data_path(given: str | Path) -> Path:
    """Return a file's path in the search roots or, if it does not exist, its path below the current folder."""
    found = _resolve_under_cwd_or_install(given, validator=Path.is_file)
    path = found if found.is_file() else Path.cwd() / given
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd())
    return path


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
