# SPDX-License-Identifier: Apache-2.0
"""`gym export` and `gym eval tokens`: export rollouts for trainers, and report token drift."""

from collections import Counter
from typing import Annotated

from pydantic import Field

from nemo_gym._config.command_flags import Flag
from nemo_gym._results.result_rows import expand_globs
from nemo_gym._training.drift import ModelDrift, report_drift
from nemo_gym._training.export import FORMATS, ExportSummary, export_rollouts
from nemo_gym._training.selection import KeepGroups, Selection
from nemo_gym._training.tokenizer_files import load_decode
from nemo_gym._util.garbage import pause_collections
from nemo_gym.cli import render
from nemo_gym.cli.settings import OneOrMany, parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig


class _RolloutsConfig(BaseNeMoGymCLIConfig):
    rollouts_jsonl_fpaths: OneOrMany = Field(min_length=1, description="Rollouts files: paths and wildcards.")
    tokenizer: Annotated[str | None, Flag()] = Field(
        default=None,
        description="A tokenizer.json or its folder, to tell re-tokenized histories from edited ones.",
    )
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the summary as JSON.")


class ExportConfig(_RolloutsConfig):
    """Write rollouts in a trainer's format."""

    export_format: Annotated[str, Flag("--to", choices=tuple(FORMATS))] = Field(description="The format.")
    output: Annotated[str, Flag(short="-o")] = Field(
        description="The file to write: JSONL, or for verl also parquet, by its suffix."
    )
    overwrite: Annotated[bool, Flag()] = Field(default=False, description="Replace an existing output.")
    min_reward: Annotated[float | None, Flag()] = Field(
        default=None, description="Minimum reward; dpo: of the chosen rollout."
    )
    keep_groups: Annotated[KeepGroups, Flag()] = Field(
        default="all", description="mixed: only tasks whose rewards differ."
    )
    min_pass_rate: Annotated[float | None, Flag()] = Field(
        default=None, description="Only tasks with at least this share of passes."
    )
    max_pass_rate: Annotated[float | None, Flag()] = Field(
        default=None, description="Only tasks with at most this share of passes."
    )
    pass_threshold: Annotated[float | None, Flag()] = Field(
        default=None, description="Minimum reward for a rollout to pass; by default 1.0."
    )
    margin: Annotated[float, Flag()] = Field(default=0.0, ge=0, description="dpo: minimum reward difference of a pair.")


class TokensConfig(_RolloutsConfig):
    """Report token drift within rollouts."""


@pause_collections()
def export(overrides: list[str]) -> int:
    """Export rollouts; return 1 if there was nothing to export."""
    config = read_settings(ExportConfig, parse_config(overrides, ExportConfig, needs_model=False))
    thresholds = {}
    if config.pass_threshold is not None:
        thresholds["pass_threshold"] = config.pass_threshold
    selection = Selection(
        config.min_reward, config.keep_groups, config.min_pass_rate, config.max_pass_rate, **thresholds
    )
    summary = export_rollouts(
        expand_globs(config.rollouts_jsonl_fpaths),
        config.export_format,
        config.output,
        selection=selection,
        margin=config.margin,
        decode=load_decode(config.tokenizer) if config.tokenizer else None,
        overwrite=config.overwrite,
    )
    if config.json_summary:
        render.json_data(summary.as_json())
    else:
        _show(summary)
    if summary.records:
        return 0
    render.error(
        "nothing was exported, and nothing was written.\nhint: the counts above say why; "
        "token ids are recorded if the model server gives them (docs/guides/export-rollouts.md)"
    )
    return 1


def _show(summary: ExportSummary) -> None:
    rows = [
        ("rollouts", str(summary.read), ""),
        ("exported", str(summary.exported), _list_counts(summary.drift)),
        ("failed", str(summary.failed.total()), _list_counts(summary.failed)),
        ("invalid", str(summary.invalid.total()), _list_counts(summary.invalid)),
        ("without tokens", str(summary.without_tokens), ""),
        ("filtered", str(summary.filtered.total()), _list_counts(summary.filtered)),
    ]
    render.table([("what became of them", "rollouts", "of which"), *rows])
    for reason, rollout in summary.survey.invalid_examples.items():
        render.note(f"invalid, as in {rollout}: {reason}")
    if summary.records:
        render.data(f"\n{summary.format}: {summary.records} records of {summary.groups} groups in {summary.output}")


def _list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


@pause_collections()
def tokens(overrides: list[str]) -> int:
    """Report the token drift of every model."""
    config = read_settings(TokensConfig, parse_config(overrides, TokensConfig, needs_model=False))
    decode = load_decode(config.tokenizer) if config.tokenizer else None
    models = report_drift(expand_globs(config.rollouts_jsonl_fpaths), decode)
    if config.json_summary:
        render.json_data({"schema": 1, "tokenizer": config.tokenizer, "models": [one.as_json() for one in models]})
        return 0
    headings = ("model", "rollouts", "clean", "realigned", "forked", "no tokens", "invalid", "failed", "trainable")
    render.table([headings, *(_make_row(one) for one in models)])
    for one in models:
        for line in _explain(one, has_decode=decode is not None):
            render.data(line)
    return 0


def _make_row(one: ModelDrift) -> tuple[str, ...]:
    counts = (one.rollouts, one.clean, one.realigned, one.forked, one.without_tokens, one.invalid.total(), one.failed)
    share = "-"
    if one.trainable_share is not None:
        share = f"{one.trainable_share:.1%} of {one.tokens}"
    return (_name(one), *map(str, counts), share)


def _explain(one: ModelDrift, *, has_decode: bool) -> list[str]:
    lines = []
    if one.invalid:
        lines.append(f"  invalid: {_list_counts(one.invalid)}")
    if one.example is not None:
        turns = ", ".join(f"{count} in turn {turn}" for turn, count in sorted(one.first_turns.items()))
        lines.append(f"  first divergence: {turns}; of tokens that were {_list_counts(one.regions)}")
        example = one.example
        lines.append(
            f"  example: task {example['task_index']}, rollout {example['rollout_index']}, turn {example['turn']}, "
            f"after {example['position']} tokens\n"
            f"    history {example['before_ids']}\n    read    {example['read_ids']}"
        )
        if has_decode:
            lines.append(f"    history {example['before_text']!r}\n    read    {example['read_text']!r}")
    if one.forked and not has_decode:
        lines.append("  hint: `--tokenizer` tells re-tokenized histories from edited ones")
    if one.versions:
        versions = ", ".join(f"{count} began with {version}" for version, count in sorted(one.versions.items()))
        lines.append(f"  policy versions: {versions}; {one.straddling} rollouts straddle several")
    return [f"\n{_name(one)}", *lines] if lines else []


def _name(one: ModelDrift) -> str:
    return " ".join(filter(None, (one.model, one.template)))
