# SPDX-License-Identifier: Apache-2.0
"""`gym eval aggregate`, `profile` and `compare`: work on the files of finished runs; no server is needed."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from nemo_gym._config.command_flags import Flag
from nemo_gym._results.aggregate_files import Requested, aggregate_rollouts, write_aggregates
from nemo_gym._results.compare_files import compare as compare_runs, explain_tests, make_comparison_table
from nemo_gym._results.merge import merge_shards, warn_of_shards
from nemo_gym._results.profile_files import write_dataset_profile, write_profile
from nemo_gym._results.result_rows import expand_globs, read_rollouts
from nemo_gym._rollouts.run_manifest import Counts
from nemo_gym._rollouts.run_paths import RunFileError, RunPaths
from nemo_gym._util.garbage import pause_collections
from nemo_gym._viewer.files.task_ranking import rank_tasks
from nemo_gym.cli import render
from nemo_gym.cli.eval.results import show, summarize
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig

ConfigT = TypeVar("ConfigT", bound=BaseModel)


class AggregateConfig(BaseNeMoGymCLIConfig):
    """Merge sharded rollouts into one file with aggregate metrics."""

    # The fields of `RolloutAggregationConfig`, whose module imports everything a run needs.
    input_glob: Annotated[str, Flag(short="-i")] = Field(
        description="Rollouts files: paths and wildcards, separated by commas."
    )
    output_jsonl_fpath: Annotated[str, Flag("--output", short="-o")] = Field(
        description="Where the merged rollouts go."
    )
    merge_shards: bool = Field(default=True, description="Write the merged rollouts, not only their metrics.")
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the summary as JSON.")


class ProfileConfig(BaseNeMoGymCLIConfig):
    """Compute reward statistics for every task."""

    rollouts_jsonl_fpath: Annotated[str, Flag("--rollouts")] = Field(description="The rollouts file.")
    materialized_inputs_jsonl_fpath: Annotated[str | None, Flag("--inputs")] = Field(
        default=None, description="The planned rollouts; by default the file next to the rollouts."
    )
    allow_partial_rollouts: Annotated[bool, Flag("--allow-partial")] = Field(
        default=False, description="Accept missing rollouts."
    )
    pass_threshold: Annotated[float | None, Flag()] = Field(
        default=None, description="Minimum reward for a rollout to pass."
    )
    input_jsonl_fpath: str | None = Field(default=None, description="The task dataset to add statistics to.")
    output_jsonl_fpath: str | None = Field(default=None, description="Where the tasks with statistics go.")
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the summary as JSON.")


class CompareConfig(BaseNeMoGymCLIConfig):
    """Compare rollouts files task by task."""

    rollouts_jsonl_fpaths: list[str] = Field(min_length=2, description="Rollouts files; the first is the baseline.")
    pass_threshold: Annotated[float | None, Flag()] = Field(
        default=None, description="Minimum reward for a rollout to pass."
    )
    json_summary: Annotated[bool, Flag()] = Field(
        default=False, alias="json", description="Print the comparison as JSON."
    )


@pause_collections()
def aggregate(overrides: list[str]) -> int:
    """Merge shards and compute their metrics."""
    config = _read_settings(AggregateConfig, overrides)
    shards = expand_globs(config.input_glob)
    for warning in warn_of_shards(shards):
        render.note(f"warning: {warning}")
    paths = RunPaths.of(config.output_jsonl_fpath)
    agents = merge_shards(shards, paths.output) if config.merge_shards else read_rollouts(shards)
    requested = Requested.count_beside(shards)
    aggregates = aggregate_rollouts(agents, requested=requested)
    write_aggregates(paths.aggregate_metrics, aggregates)
    scored = sum(one.n_scored for one in aggregates)
    wanted = sum(requested.agents.values()) if requested else scored
    counts = Counts(requested=wanted, scored=scored, failed=wanted - scored)
    if config.json_summary:
        render.json_data(summarize(paths, counts, aggregates))
    else:
        show(paths, counts, aggregates)
    return 0


@pause_collections()
def profile(overrides: list[str]) -> int:
    """Profile rollouts by task, or add the statistics of their rollouts to the tasks of a dataset."""
    config = _read_settings(ProfileConfig, overrides)
    if not Path(config.rollouts_jsonl_fpath).is_file():
        raise RunFileError(
            f"there is no rollouts file {str(config.rollouts_jsonl_fpath)!r}.\n"
            "hint: it is the output of `gym eval run`; the path is relative to this folder"
        )
    if config.input_jsonl_fpath is not None and config.output_jsonl_fpath is not None:
        written = write_dataset_profile(
            config.input_jsonl_fpath,
            config.rollouts_jsonl_fpath,
            config.output_jsonl_fpath,
            pass_threshold=config.pass_threshold,
        )
        facts: dict[str, Any] = {"tasks": written.n_tasks, "rollouts": written.n_scored, "output": str(written.tasks)}
        first = f"Profiled {written.n_tasks} tasks from {written.n_scored} rollouts: {written.tasks}"
        last = None
    else:
        inputs = config.materialized_inputs_jsonl_fpath or RunPaths.of(config.rollouts_jsonl_fpath).materialized
        written = write_profile(
            Path(inputs),
            config.rollouts_jsonl_fpath,
            allow_partial=config.allow_partial_rollouts,
            pass_threshold=config.pass_threshold,
        )
        counts = {"scored": written.n_scored, "requested": written.n_requested, "tasks": written.n_tasks}
        facts = {"counts": counts, "task_statistics": str(written.tasks), "agent_metrics": str(written.agents)}
        first = f"{written.n_scored} scored of {written.n_requested} requested rollouts, {written.n_tasks} tasks"
        last = f"\ntasks:  {written.tasks}\nagents: {written.agents}"
    ranking = rank_tasks(written.rewards, written.read_samples, config.pass_threshold)
    if config.json_summary:
        render.json_data({"schema": 1, **facts, "ranking": ranking.as_json()})
        return 0
    render.data(first)
    for title, rows in ranking.tables():
        render.data("")
        render.table(rows, title=title)
    if last:
        render.data(last)
    return 0


def _read_settings(kind: type[ConfigT], overrides: list[str]) -> ConfigT:
    return read_settings(kind, parse_config(overrides, kind))


@pause_collections()
def compare(overrides: list[str]) -> int:
    """Compare rollouts files task by task; the first is the baseline."""
    config = _read_settings(CompareConfig, overrides)
    compared = compare_runs(config.rollouts_jsonl_fpaths, pass_threshold=config.pass_threshold)
    if config.json_summary:
        render.json_data(compared.as_json())
    else:
        render.table(make_comparison_table(compared))
        for reason in explain_tests(compared):
            render.note(reason)
    return 0
