# SPDX-License-Identifier: Apache-2.0
"""Rollouts for programs: run examples against running agents, one awaitable each, or a whole file of them.

This module holds the settings of a collection and of its follow-ups, the keys by which agents and verifiers route a
result, and `RolloutCollectionHelper`. `nemo_gym._rollouts` plans, runs and records rollouts; `gym eval run` also starts
the servers.
"""

import asyncio
import http.client
import logging
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import orjson
from pydantic import (
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from nemo_gym._config.command_flags import SAMPLING_FLAGS, Flag
from nemo_gym._rollouts.collect import Run, RunIdentity, plan_or_resume
from nemo_gym._rollouts.expand import ExpandSettings, expand, find_unused_repeats
from nemo_gym._rollouts.input_lines import read_input
from nemo_gym._rollouts.journal import build_failed_row
from nemo_gym._rollouts.outcomes import Failed, Scored, key_of, pick_carried_fields
from nemo_gym._rollouts.play import Observer, PlaySettings
from nemo_gym._rollouts.resume import find_remaining
from nemo_gym._rollouts.rollout_calls import (
    attach_trajectory_record as _attach_trajectory_record,  # noqa: F401  others import it from here
    collect_from_agents,
    find_observer,
    make_player,
    metrics_from_servers,
)
from nemo_gym._rollouts.run_manifest import Shard
from nemo_gym._rollouts.run_paths import RunPaths, lock_run
from nemo_gym._servers.policy_versions.staleness import StalenessGate
from nemo_gym._transport.call_errors import ServerResponseError
from nemo_gym._transport.failures import Failure
from nemo_gym._util.jsonl_files import read_rows, write_rows
from nemo_gym._util.moved_names import find_names
from nemo_gym._util.off_the_loop import AsFinished
from nemo_gym._util.row_keys import (
    MASK_SAMPLE_KEY,
    NG_FAILURE_CLASS_KEY as NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY as NG_NO_PERSIST_KEY,
    NG_TERMINAL_KEY as NG_TERMINAL_KEY,
    REWARD_KEY_NAME,
)
from nemo_gym.config_types import BaseNeMoGymCLIConfig, BaseServerConfig, UploadRolloutsConfigMixin
from nemo_gym.errors import ConfigError, GymError, RolloutFailure
from nemo_gym.global_config import (
    AGENT_REF_KEY_NAME,
    RESPONSE_KEY_NAME,
    get_global_config_dict as get_global_config_dict,
)
from nemo_gym.rollout_reverification import RolloutReverificationConfig as RolloutReverificationConfig
from nemo_gym.secret_utils import recursively_hide_secrets
from nemo_gym.server_utils import ServerClient, setup_server_client

LOG = logging.getLogger(__name__)
_MAX_ATTEMPTS_ENV = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
_MAX_ATTEMPTS = 3
_OLDER_PARAMS = {"max_tokens": "max_output_tokens"}
# What distinguishes the rollouts of one run from those of another.
_IDENTITY = ("agent_name", "limit", "num_repeats", "num_repeats_add_seed", "responses_create_params", "prompt_config")
_IDENTITY_IF_SET = ("shard",)  # manifests of older runs do not have it


class SkillsConfig(BaseModel):
    """Skills that the run's agents are given."""

    path: str
    """Folder that holds the skills."""


class SharedRolloutCollectionConfig(UploadRolloutsConfigMixin, BaseNeMoGymCLIConfig):
    """Settings that every kind of collection shares."""

    output_jsonl_fpath: Annotated[str, Flag("--output", short="-o")] = Field(description="Where the rollouts go.")
    num_samples_in_parallel: Annotated[PositiveInt | None, Flag("--concurrency")] = Field(
        default=None, description="Rollouts to run at once; by default `gym eval run` adapts to the endpoint."
    )
    responses_create_params: Annotated[dict[str, Any], *SAMPLING_FLAGS] = Field(
        default_factory=dict, description="Overrides for the create params of every row, such as `temperature`."
    )
    disable_aggregation: Annotated[bool, Flag()] = Field(default=False, description="Write rollouts only, no metrics.")
    rollout_collection_driver: str | None = Field(
        default=None, description="`module:function` that collects instead, called with this config."
    )
    max_policy_staleness: NonNegativeInt | None = Field(
        default=None,
        description="Hold back new rollouts that would be trained on more than this many policy versions after they "
        "began; needs `policy_batch_size`.",
    )
    policy_batch_size: PositiveInt | None = Field(
        default=None, description="How many rollouts the trainer uses per policy version."
    )
    policy_version_timeout_seconds: PositiveFloat = Field(
        default=3600.0, description="Give up if `max_policy_staleness` has held everything back for this long."
    )

    @model_validator(mode="after")
    def _require_batch_size(self) -> Self:
        if self.max_policy_staleness is not None and self.policy_batch_size is None:
            raise ValueError(
                "max_policy_staleness is set, but policy_batch_size is not.\n"
                "hint: add `++policy_batch_size=N`, the number of rollouts that the trainer uses per version"
            )
        return self

    def make_staleness_gate(self) -> StalenessGate | None:
        """Return the gate that holds rollouts back until the policy has moved on; None if nothing does."""
        if self.max_policy_staleness is None or self.policy_batch_size is None:
            return None
        return StalenessGate(self.max_policy_staleness, self.policy_batch_size, version=None)


class E2ERolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Settings of `gym eval run`: prepare the data, start the servers, collect, stop."""

    split: Literal["train", "validation", "benchmark"] = Field(description="Which datasets of the config to run.")
    reuse_existing_data_preparation: bool = Field(default=False, description="Use the data an earlier run prepared.")


class RolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Collect a batch of rollouts from running servers."""

    agent_name: Annotated[str | None, Flag("--agent", short="-a")] = Field(None, description="For rows that name none.")
    input_jsonl_fpath: str = Field(description="The input tasks, in the form of a file path to a JSONL file.")
    limit: Annotated[PositiveInt | None, Flag()] = Field(default=None, description="Run at most this many tasks.")
    num_repeats: Annotated[PositiveInt | dict[str, PositiveInt], Flag()] = Field(
        default=1, description="Rollouts per task: a number, or one per agent, as in `{agent: 2, _default: 1}`."
    )
    num_repeats_add_seed: bool = Field(default=False, description="Send the rollout index as the sampling seed.")
    shard: Annotated[str | None, Flag()] = Field(
        default=None, description="K/N: run part K of N of the tasks; `gym eval aggregate` merges the parts."
    )
    resume_from_cache: Annotated[bool, Flag("--resume")] = Field(False, description="Run only what the output lacks.")
    prompt_config: Annotated[str | None, Flag()] = Field(None, description="A prompt template applied to every row.")
    skills: SkillsConfig | None = Field(default=None, description="Skills for the agents of the run.")

    @field_validator("num_repeats", mode="wrap")
    @classmethod
    def _check_repeats(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return 1 if value is None else validate(value)
        except ValidationError as error:
            number = "a whole number of at least 1"
            if isinstance(value, dict):
                raise ValueError(f"num_repeats dict values must each be {number}, not {value!r}") from error
            raise ValueError(
                f"num_repeats must be {number}, or a mapping of agents to such numbers, not {value!r}"
            ) from error

    @field_validator("shard")
    @classmethod
    def _check_shard(cls, value: str | None) -> str | None:
        return None if value is None else str(Shard.parse(value))

    @property
    def materialized_jsonl_fpath(self) -> Path:
        """Return where the expanded inputs are written."""
        return RunPaths.of(self.output_jsonl_fpath).materialized

    def expand_settings(self, known_agents: list[str] | None = None) -> ExpandSettings:
        """Return the settings that turn the input into rollouts."""
        prompt = None
        if self.prompt_config is not None:
            from nemo_gym.prompt import apply_prompt_to_row, load_prompt_config

            template = load_prompt_config(self.prompt_config)
            prompt = partial(apply_prompt_to_row, template, prompt_config_path=self.prompt_config)
        skills_ref = None
        if self.skills is not None:
            from nemo_gym.skills import load_skill_directory

            skills_ref = load_skill_directory(self.skills.path).model_dump()
        return ExpandSettings(
            agent_name=self.agent_name,
            limit=self.limit,
            repeats=self.num_repeats,
            add_seed=self.num_repeats_add_seed,
            overrides={_OLDER_PARAMS.get(key, key): value for key, value in self.responses_create_params.items()},
            prompt=prompt,
            skills_ref=skills_ref,
            shard=None if self.shard is None else Shard.parse(self.shard),
            known_agents=known_agents,
        )

    def identity(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with the earlier run, with secrets masked."""
        asked = {name for name in _IDENTITY_IF_SET if getattr(self, name) is not None}
        identity = self.model_dump(mode="json", include={*_IDENTITY, *asked})
        recursively_hide_secrets(identity)
        return identity


class RolloutAggregationConfig(BaseNeMoGymCLIConfig):
    """Merge sharded rollouts into one file with aggregate metrics."""

    input_glob: str = Field(description="Rollouts files: paths and wildcards, separated by commas.")
    output_jsonl_fpath: str = Field(description="Where the merged rollouts go.")
    merge_shards: bool = Field(default=True, description="Write the merged rollouts, not only their metrics.")


class FailedRollout(dict[str, Any]):
    """Stands in for a missing result: the rollout's row in the failures file, with `mask_sample`.

    It has a reward only if the agent itself masked the rollout and left one.
    """

    def __init__(self, row: Mapping[str, Any], failure: Failure) -> None:
        super().__init__(row)
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.failure)


Played = tuple[dict[str, Any], dict[str, Any]]


class _MetricsWriter(BaseModel):
    """Writes a run's metrics as its running servers compute them; subclasses may override both methods."""

    def setup_server_client(self, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """Return a client for the running servers."""
        return setup_server_client(head_server_config)

    async def _call_aggregate_metrics(
        self, results: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], output_fpath: str | Path
    ) -> Path | None:
        """Write the metrics of `results` beside `output_fpath`, each agent's as its own server computes them.

        `rows` are the planned rollouts; the metrics report how many there are. Return None if there are no results.
        """
        if not results:
            return None
        from nemo_gym._results.aggregate_files import Requested, aggregate_with, write_aggregates
        from nemo_gym._results.result_rows import read_agent_name, strip_row

        planned_rows = [dict(row) for row in rows]
        agents = Counter(map(read_agent_name, planned_rows))
        requested = Requested(agents, Counter(key_of(row)[0] for row in planned_rows))
        ask = metrics_from_servers(self.setup_server_client(), LOG.warning)
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "results.jsonl"
            write_rows(kept, (strip_row(dict(result)) for result in results))
            aggregates = await aggregate_with(ask, [kept], requested=requested)
        from nemo_gym.exporters import export_aggregates

        await asyncio.to_thread(export_aggregates, aggregates)
        return write_aggregates(RunPaths.of(output_fpath).aggregate_metrics, aggregates)


class RolloutCollectionHelper(_MetricsWriter):
    """Runs examples against the agents they name."""

    def run_examples(
        self,
        examples: list[dict[str, Any]],
        head_server_config: BaseServerConfig | None = None,
        semaphore: asyncio.Semaphore | None = None,
        *,
        route_failures_to_sidecar: bool = False,
        gate: StalenessGate | None = None,
        gate_timeout_s: float | None = None,
    ) -> Iterator[Awaitable[Played]]:
        """Run every example; return one awaitable of `(row, result)` for each, in the order they finish.

        The awaitable of a failed rollout raises an `aiohttp.ClientResponseError` with the agent's status, its body in
        `response_content` and the RolloutFailure as its cause. With `route_failures_to_sidecar` it returns a
        `FailedRollout` instead: the row for the failures file. Either way, TooManyMaskedSamples is raised if the config
        bounds how many rollouts may lack token ids. Token ids in a result extend each other
        (`nemo_gym._training.handover`). Rollouts that nobody can await any more are cancelled.

        With a `gate`, a rollout begins once it would not be too stale to train on; one that fails gives its place back,
        and one that waits longer than `gate_timeout_s` raises StalenessTimeout.
        """
        for row in examples:
            _require_agent(row)
        client = self.setup_server_client(head_server_config)
        observer = find_observer(client)
        limit = semaphore or nullcontext()
        player = make_player(client, PlaySettings(), observer=observer)

        async def play(row: dict[str, Any]) -> Played:
            async with limit:
                if gate is not None:
                    await gate.admit(timeout_s=gate_timeout_s)
                try:
                    outcome = await player.play(row)
                except BaseException:
                    if gate is not None:
                        gate.give_back()
                    raise
            if gate is not None and not isinstance(outcome, Scored):
                gate.give_back()
            if observer is not None and (reason := await observer.note_recorded(outcome)):
                from nemo_gym.token_id_capture import TooManyMaskedSamples

                raise TooManyMaskedSamples(reason)
            if isinstance(outcome, Scored):
                return row, outcome.result
            failed = FailedRollout(build_failed_row(outcome), outcome.failure)
            # A trainer takes a masked sample unchanged: it has a response, and its reward does not count.
            if failed.get(MASK_SAMPLE_KEY) and RESPONSE_KEY_NAME in failed:
                return row, failed
            if route_failures_to_sidecar:
                # A verifier's placeholder for a missing score, such as 0.0, must not enter group statistics.
                failed.pop(REWARD_KEY_NAME, None)
                failed[MASK_SAMPLE_KEY] = True
                return row, failed
            failure = outcome.failure
            raise _make_error(outcome) from RolloutFailure(failure.kind, failure.message, failure.retryable)

        plays = [play(row) for row in examples]
        if observer is not None:
            plays = _close_after(plays, observer)
        return AsFinished(plays)

    async def run_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        """Collect rollouts from running servers into the files of `config`.

        Return the scored ones, ordered by task and rollout.
        """
        paths = RunPaths.of(config.output_jsonl_fpath)
        client = self.setup_server_client()
        with lock_run(paths):
            run = plan_or_resume(
                paths,
                # We do not know which servers run, so their config cannot be compared.
                RunIdentity(config.input_jsonl_fpath, config.identity()),
                config.expand_settings,
                resume=config.resume_from_cache,
                max_attempts=_get_max_rollout_attempts(),
            )
            for warning in run.plan.warnings if run.plan else ():
                warnings.warn(warning, UserWarning, stacklevel=2)
            if type(self).run_examples is _RUN_EXAMPLES:
                gate = config.make_staleness_gate()
                gate_timeout_s = config.policy_version_timeout_seconds
                await collect_from_agents(run, client, config.num_samples_in_parallel, gate, gate_timeout_s)
            else:
                await self._record_examples(run, config)
        results = sorted(read_rows(paths.output), key=key_of)
        if not config.disable_aggregation:
            await self._call_aggregate_metrics(results, list(read_rows(paths.materialized)), paths.output)
        return results

    async def _record_examples(self, run: Run, config: RolloutCollectionConfig) -> None:
        """Hand all rows of `run` to the `run_examples` of a subclass, and record what it returns.

        Whether a result without a reward is complete is for the subclass to say, so it is recorded like any other.
        """
        concurrency = config.num_samples_in_parallel
        semaphore = None
        if concurrency:
            semaphore = asyncio.Semaphore(concurrency)
        with run.open_journal() as journal:
            # The rows exist once the journal is open.
            for pending in self.run_examples(list(run.rows), semaphore=semaphore, route_failures_to_sidecar=True):
                row, result = await pending
                if isinstance(result, FailedRollout):
                    journal.record(Failed(row, result.failure, attempts=1, elapsed_s=0.0, result=dict(result)))
                else:
                    result.update(pick_carried_fields(row))
                    journal.record(Scored(row, result, attempts=1, elapsed_s=0.0))

    def _preprocess_rows_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        """Return the rollouts that `config` describes, each a checked row for `run_examples`."""
        source = config.input_jsonl_fpath
        settings = config.expand_settings()
        rows = list(expand(read_input(source), settings, source))
        for warning in find_unused_repeats(settings, {row[AGENT_REF_KEY_NAME]["name"] for row in rows}):
            warnings.warn(warning, UserWarning, stacklevel=2)
        return rows

    def _load_from_cache(
        self, config: RolloutCollectionConfig
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Read what an earlier run left in the files of `config`.

        Return the rows still to run, then those that have a result, and these results in the same order.
        """
        paths = RunPaths.of(config.output_jsonl_fpath)
        left = sorted(find_remaining(paths, _get_max_rollout_attempts()).read_remaining(), key=key_of)
        results = []
        if paths.output.exists():
            results = sorted(read_rows(paths.output), key=key_of)
        rows = {key_of(row): row for row in read_rows(paths.materialized)}
        return left, [rows[key_of(result)] for result in results], results


_RUN_EXAMPLES = RolloutCollectionHelper.run_examples


class RolloutAggregationHelper(_MetricsWriter):
    """Merges the shards of a run."""

    async def run_from_config(self, config: RolloutAggregationConfig) -> list[dict[str, Any]]:
        """Merge the shards that `config` names, write their metrics, and return their rollouts by task and rollout.

        Agents compute their own metrics, so their servers must be running; `gym eval aggregate` does not need them.
        """
        from nemo_gym._results.merge import merge_shards, warn_of_shards
        from nemo_gym._results.result_rows import expand_globs

        shards = expand_globs(config.input_glob)
        output = RunPaths.of(config.output_jsonl_fpath).output
        for warning in warn_of_shards(shards):
            LOG.warning("%s", warning)
        if config.merge_shards:
            merge_shards(shards, output)
        plans = [RunPaths.of(shard) for shard in shards]
        # With only some of the plans, it would look as if fewer rollouts were planned than there are.
        is_known = all(paths.materialized.is_file() for paths in plans)
        rows = []
        if is_known:
            rows = [row for paths in plans for row in read_rows(paths.materialized)]
        results = sorted((row for shard in shards for row in read_rows(shard)), key=key_of)
        await self._call_aggregate_metrics(results, rows, output)
        return results


def _close_after(plays: Sequence[Awaitable[Played]], observer: Observer) -> list[Coroutine[Any, Any, Played]]:
    """Return `plays`, wrapped so that the last one to end closes `observer`."""
    left = len(plays)

    async def close_if_last(play: Awaitable[Played]) -> Played:
        nonlocal left
        try:
            return await play
        finally:
            left -= 1
            if left == 0:
                await observer.aclose()

    return [close_if_last(play) for play in plays]


def _make_error(outcome: Failed) -> ServerResponseError:
    """Return the error to raise for `outcome`: the agent's own error reply, or a substitute."""
    if outcome.error_reply is not None:
        return outcome.error_reply
    failure = outcome.failure
    status = 503 if failure.retryable else 500
    if failure.kind == "timeout":
        status = 504
    body = orjson.dumps(f"{failure.kind}: {failure.message}")
    reason = http.client.responses[status]
    return ServerResponseError("POST", failure.boundary, status, reason, body, failure.encode())


def _require_agent(row: Mapping[str, Any]) -> None:
    if not (row.get(AGENT_REF_KEY_NAME) or {}).get("name"):
        raise GymError(
            f"a row names no agent: it has only {', '.join(sorted(row))}.\n"
            'hint: give it `"agent_ref": {"type": "responses_api_agents", "name": "<agent>"}`, or pass `agent_name`'
        )


def _get_max_rollout_attempts() -> int:
    """Return how many attempts a failing rollout gets in total, across resumed runs."""
    given = os.environ.get(_MAX_ATTEMPTS_ENV, "").strip()
    if not given:
        return _MAX_ATTEMPTS
    if given.isdecimal() and int(given) >= 1:
        return int(given)
    LOG.warning("%s is %r, not a positive whole number; using %d", _MAX_ATTEMPTS_ENV, given, _MAX_ATTEMPTS)
    return _MAX_ATTEMPTS


def loads_jsonl_line(raw: bytes | str, path: str | Path, line: int) -> Any:
    """Parse one line of a JSONL file; the error names the file and the line."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"Malformed JSON in {str(path)!r} at line {line}: {error}") from error


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
