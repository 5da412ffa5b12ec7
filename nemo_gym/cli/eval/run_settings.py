# SPDX-License-Identifier: Apache-2.0
"""The settings of `gym eval run`: its config keys, and the input file that they select."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._config.command_flags import Flag
from nemo_gym._config.defaults import MODEL_READINESS_TIMEOUT_S
from nemo_gym._rollouts.play import PlaySettings
from nemo_gym._util.usable_cores import count_usable_cores
from nemo_gym.cli.settings import validate_settings
from nemo_gym.config_types import ConfigError
from nemo_gym.global_config import MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME, get_first_server_config_dict
from nemo_gym.rollout_collection import RolloutCollectionConfig
from nemo_gym.train_data_utils import DatasetScope, dataset_scope, write_evaluation_input

_PREPARED = "preprocessed_datasets"
Split = Literal["train", "validation", "example", "benchmark"]


class EvalRunConfig(PlaySettings, RolloutCollectionConfig):
    """Collect rollouts: start the servers of a config, or use running ones, and run every task."""

    input_jsonl_fpath: Annotated[str | None, Flag("--input", short="-i")] = Field(  # type: ignore[assignment]  # by default the config's datasets
        default=None, description="The tasks: JSONL, plain, gzip or a pipe; by default datasets of the config."
    )
    split: Annotated[Split | None, Flag()] = Field(
        default=None, description="Which datasets of the config to run if no input is given."
    )
    reuse_existing_data_preparation: bool = Field(default=False, description="Use the data an earlier run prepared.")
    no_serve: Annotated[bool, Flag()] = Field(default=False, description="Use servers that are already running.")
    allow_failures: Annotated[str, Flag()] = Field(
        default="0", description="How many rollouts may fail: a number or a percentage."
    )
    max_failure_rate: Annotated[float | None, Flag()] = Field(
        default=None, ge=0, le=1, description="Stop early when this share of the latest rollouts fails, such as 0.5."
    )
    wait_for_model: Annotated[NonNegativeFloat | None, Flag()] = Field(
        default=None,
        description="Seconds to wait for a model that is still loading; by default the run ends at once.",
    )
    num_rollout_workers: Annotated[PositiveInt | Literal["auto"], Flag("--workers")] = Field(
        default=1, description="Processes that run rollouts: a number, or `auto` for one per usable core."
    )
    rollout_workers_on: Annotated[Literal["machine", "ray"], Flag("--on")] = Field(
        default="machine", description="Where workers run: on this machine, or as Ray actors on any node of a cluster."
    )
    rollout_worker_cpus: NonNegativeFloat = Field(
        default=1.0, description="CPUs of a Ray cluster that each worker takes."
    )
    task_metrics: list[str] = Field(
        default_factory=list,
        description="Numbers of the tasks themselves that the table of metrics shows too, such as `difficulty`.",
    )
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the summary as JSON.")

    @field_validator("allow_failures", mode="before")
    @classmethod
    def _check_number_or_share(cls, value: Any) -> str:
        text = str(value)
        number = text.removesuffix("%")
        if not number.replace(".", "", 1).isdigit():
            raise ValueError(f"must be a number or a percentage, not {text!r}")
        return text

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        wants_workers = self.num_rollout_workers != 1 or self.rollout_workers_on != "machine"
        if wants_workers and (self.no_serve or self.rollout_collection_driver):
            other = "no_serve" if self.no_serve else "rollout_collection_driver"
            raise ValueError(
                f"workers host their own servers, which cannot be combined with `{other}`; "
                "servers that run elsewhere have `num_workers` in their config instead"
            )
        return self

    def count_workers(self) -> int | None:
        """Return how many workers to run; None for as many as a Ray cluster has room for."""
        if self.num_rollout_workers != "auto":
            return self.num_rollout_workers
        if self.rollout_workers_on == "ray":
            return None
        return count_usable_cores()

    def count_allowed_failures(self, requested: int) -> int:
        """Return how many of `requested` rollouts may fail."""
        if self.allow_failures.endswith("%"):
            return int(requested * float(self.allow_failures.removesuffix("%")) / 100)
        return int(float(self.allow_failures))

    def seconds_for_models(self, config: DictConfig) -> float:
        """Return how long to wait for models at the start: as set here, or by the setting of `env start`."""
        if self.wait_for_model is not None:
            return self.wait_for_model
        ready_s = float(config.get(MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME) or 0)
        if ready_s == MODEL_READINESS_TIMEOUT_S:  # the default, which nobody asked for
            return 0.0
        return ready_s


def read_settings(config: DictConfig) -> EvalRunConfig:
    """Read the settings of a run from a whole config."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return validate_settings(EvalRunConfig, plain)


@contextmanager
def drop_prepared_data_on_error(settings: EvalRunConfig) -> Iterator[None]:
    """Remove the data that the block has prepared, and the folders made for it, if the run is refused there."""
    folder = Path(settings.output_jsonl_fpath).with_suffix("")
    prepared = folder / _PREPARED
    before = {*prepared.glob("*")}
    try:
        yield
    except BaseException:
        for path in {*prepared.glob("*")} - before:
            path.unlink()
        for made in (prepared, folder):
            with suppress(OSError):  # it is not there, or something else is in it
                made.rmdir()
        raise


def choose_input(settings: EvalRunConfig, config: DictConfig, notice: Callable[[str], None]) -> str:
    """Return the file to read tasks from: the named one, else one with the config's own datasets."""
    if settings.input_jsonl_fpath is not None:
        if settings.input_jsonl_fpath == "-":
            return settings.input_jsonl_fpath
        return str(_resolve_under_cwd_or_install(settings.input_jsonl_fpath))
    if settings.no_serve:
        raise ConfigError("which tasks? With --no-serve, name a file: --input tasks.jsonl")
    split, scope = _choose_datasets(settings, config, notice)
    repeated = max(source.repeats for source in scope.sources)
    if settings.num_repeats != 1 and repeated > 1:
        notice(f"--num-repeats comes on top of the repeats of the config's datasets (up to {repeated} per row)")
    output = Path(settings.output_jsonl_fpath)
    # A later run must not take some rows for the whole split.
    name = "_".join(filter(None, (split, settings.agent_name)))
    if settings.limit is not None:
        name += f"_first_{settings.limit}"
    prepared = output.with_suffix("") / _PREPARED / f"{name}.jsonl"
    if settings.reuse_existing_data_preparation and prepared.is_file():
        notice(f"running the rows that an earlier run prepared: {prepared}")
        return str(prepared)
    # A prompt that the user gave is applied later, instead of the one in the config.
    check = settings.prompt_config is None
    count = write_evaluation_input(scope, prepared, limit=settings.limit, check=check, notice=notice)
    if settings.split is None:
        notice(f"no --input and no --split: running the {count} {split} rows of the config")
    return str(prepared)


def _choose_datasets(
    settings: EvalRunConfig, config: DictConfig, notice: Callable[[str], None]
) -> tuple[Split, DatasetScope]:
    """Return the split to run and its datasets, those of `--agent` if it is given.

    By default it is the benchmark split if the config has one, else the examples.
    """
    with_prompts = settings.prompt_config is None
    split: Split = settings.split or "benchmark"
    scope = dataset_scope(config, [split], with_prompts=with_prompts)
    if settings.split is None and not scope.sources:
        split = "example"
        scope = dataset_scope(config, ["example"], with_prompts=with_prompts)
    if not scope.sources:
        raise ConfigError(f"the config has no {split} dataset.\nhint: name a file with --input, or another --split")
    if settings.agent_name is None:
        return split, scope
    sources = tuple(source for source in scope.sources if source.agent == settings.agent_name)
    if not sources and (lender := _find_lender(settings.agent_name, scope, config)) is not None:
        notice(f"agent {settings.agent_name!r} has no {split} dataset: running that of {lender!r}, in the same server")
        lent = (source for source in scope.sources if source.agent == lender)
        sources = tuple(replace(source, agent=settings.agent_name) for source in lent)
    if not sources:
        others = ", ".join(dict.fromkeys(repr(source.agent) for source in scope.sources))
        raise ConfigError(
            f"agent {settings.agent_name!r} has no {split} dataset; there are some for {others}.\n"
            f"hint: `--input FILE --agent {settings.agent_name}` runs the tasks of a file"
        )
    return split, replace(scope, sources=sources)


def _find_lender(agent: str, scope: DatasetScope, config: DictConfig) -> str | None:
    """Return the first agent with datasets that uses the same resources server: its tasks suit `agent` too."""
    server = _read_resources_server(agent, config)
    fellows = (source.agent for source in scope.sources if _read_resources_server(source.agent, config) == server)
    return next(fellows, None) if server is not None else None


def _read_resources_server(agent: str, config: DictConfig) -> str | None:
    reference = get_first_server_config_dict(config, agent).get("resources_server") if agent in config else None
    return None if reference is None else str(reference["name"])
