# SPDX-License-Identifier: Apache-2.0
"""`gym dataset collate` and `gym dataset render`: check, measure and join datasets, and fill prompts into raw rows."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from nemo_gym._config.command_flags import Flag
from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.collate import Collation
from nemo_gym._data.sources import Registry, Source, choose_registry, describe_place
from nemo_gym._data.text_lengths import load_tokenizer
from nemo_gym.cli import render
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.prompt import materialize_prompts
from nemo_gym.train_data_utils import DatasetScope, TrainDataProcessor, TrainDataProcessorConfig

_STATISTICS = ("Total # non-null values", "Average", "Min", "Max", "Standard deviation")
_HEADINGS = ("metric", "values", "average", "min", "max", "std")


class CollateConfig(TrainDataProcessorConfig):
    """Check, measure and merge the datasets of a config."""

    json_summary: Annotated[bool, Flag()] = Field(
        default=False, alias="json", description="Print what was written as JSON."
    )


def collate(overrides: list[str]) -> int:
    """Check, measure and collate; return 1 if a dataset is missing, a row is bad, or metrics have changed."""
    whole = parse_config(overrides, CollateConfig, needs_model=False)
    config = read_settings(CollateConfig, whole)
    say = render.note if config.json_summary else render.data
    processor = TrainDataProcessor()
    scope = processor.scope(config, whole)
    say("\n".join([*_describe_scope(scope, config.mode), "", *_describe_files(scope, config)]))
    processor.require(config, scope, render.note)
    say("\n3. Rows: checking and measuring")
    if load_tokenizer() is None:
        render.note("input lengths in tokens are left out: pip install 'nemo-gym[data]' for the tokenizer")
    collation = processor.collate(config, scope, _progress)
    _show(collation, as_json=config.json_summary)
    collation.raise_on_conflict()
    say("Finished!")
    return 0


def _describe_scope(scope: DatasetScope, mode: str) -> Iterator[str]:
    yield "1. Datasets of the config"
    yield f"servers: {', '.join(scope.servers)}"
    yield f"with data: {', '.join(scope.agents_with_data) or 'none'}"
    yield f"agents without data: {', '.join(scope.agents_without_data) or 'none'}"
    yield f"in scope ({mode}): {', '.join(f'{one.name!r} of {one.agent!r}' for one in scope.sources)}"


def _describe_files(scope: DatasetScope, config: CollateConfig) -> Iterator[str]:
    yield "2. Files"
    for source in scope.sources:
        if source.exists:
            yield f"FOUND    {source}{_note_unfetched(source, config.data_source) if config.should_download else ''}"
    for source in scope.sources:
        if not source.exists:
            yield f"MISSING  {source}"


def _note_unfetched(source: Source, preferred: Registry) -> str:
    """Note that the file is used as is, although a registry may hold another one."""
    dataset = source.dataset
    if not isinstance(dataset, DatasetConfig) or (registry := choose_registry(dataset, preferred)) is None:
        return ""
    return f"; used as is, not downloaded from {describe_place(dataset, registry)}"


def _progress(source: Source, rows: int) -> None:
    if rows % 100_000 == 0:
        render.note(f"{source.path}: {rows:,} rows")


def _show(collation: Collation, *, as_json: bool) -> None:
    if as_json:
        render.json_data(_as_json(collation))
        return
    for dataset in collation.datasets:
        render.data("")
        render.table(_metrics_table(dataset.metrics), title=str(dataset.source))
        path = str(dataset.metrics_path)
        if dataset.conflicts:
            path = f"{dataset.targets.conflict}, not those of {dataset.targets.existing_metrics}"
        render.data(f"metrics: {path}\nrows:    {dataset.targets.prepared}")
    render.data("\n4. Collated")
    for one in collation.types:
        count = one.metrics["Number of examples"]
        render.data(f"{one.path}: {count} {'row' if count == 1 else 'rows'}; metrics: {one.metrics_path}")


def _metrics_table(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for name, value in metrics.items():
        if not isinstance(value, Mapping):
            rows.append((name, str(value), "", "", "", ""))
        elif "unique_count" in value:
            rows.append((name, f"{value['total_count']}, {value['unique_count']} different", "", "", "", ""))
        else:
            rows.append((name, *(str(value[statistic]) for statistic in _STATISTICS)))
    return rows


def _as_json(collation: Collation) -> dict[str, Any]:
    return {
        "schema": 1,
        "datasets": [
            {
                "agent": one.source.agent,
                "name": one.source.name,
                "type": one.source.type,
                "path": one.source.path,
                "prepared": one.targets.prepared,
                "metrics_path": one.targets.conflict if one.conflicts else one.metrics_path,
                "metrics": one.metrics,
                "conflicts": one.conflicts,
            }
            for one in collation.datasets
        ],
        "collated": [
            {"type": one.type, "path": one.path, "metrics_path": one.metrics_path, "metrics": one.metrics}
            for one in collation.types
        ],
    }


# --- render -----------------------------------------------------------------------------------------------------------


class MaterializePromptsConfig(BaseNeMoGymCLIConfig):
    """Apply a prompt template to raw rows: JSONL with `responses_create_params.input` filled in."""

    input_jsonl_fpath: Annotated[str, Flag("--input", short="-i")] = Field(
        description="The raw rows, without `responses_create_params.input`."
    )
    prompt_config: Annotated[str, Flag()] = Field(
        description="YAML prompt with a `user` and an optional `system` template."
    )
    output_jsonl_fpath: Annotated[str, Flag("--output", short="-o")] = Field(
        description="Where the rows with prompts go."
    )


def fill_prompts(overrides: list[str]) -> int:
    """Apply the prompt to every row; if one does not fit, return 1 and write nothing."""
    config = read_settings(MaterializePromptsConfig, parse_config(overrides, MaterializePromptsConfig))
    count = materialize_prompts(config.input_jsonl_fpath, config.prompt_config, config.output_jsonl_fpath)
    render.data(f"Materialized {count} rows to {config.output_jsonl_fpath}")
    return 0
