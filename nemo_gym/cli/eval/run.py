# SPDX-License-Identifier: Apache-2.0
"""`gym eval run`: plan the rollouts, start or find the servers, play what is left, account for all of it."""

import asyncio
import atexit
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._results.aggregate import AgentAggregate, Requested
from nemo_gym._results.summary import RunSummary
from nemo_gym._rollouts.collect import CollectSettings, collect
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.dispatch import rare_collections
from nemo_gym._rollouts.expand import materialize
from nemo_gym._rollouts.inputs import read_input
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import AdaptiveLimit, FixedLimit, Limiter
from nemo_gym._rollouts.lock import run_lock
from nemo_gym._rollouts.manifest import Counts, Manifest, git_state, input_identity, read_manifest
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.planned import read_by_repeat
from nemo_gym._rollouts.resume import can_resume, is_given_up, what_is_left
from nemo_gym._rollouts.types import Failed, Outcome, Row
from nemo_gym._serving.event_loop import run_beside_servers
from nemo_gym._transport.failures import describe_error_with_place
from nemo_gym._util.nearest import did_you_mean
from nemo_gym._util.open_files import allow_open_files
from nemo_gym.cli import render
from nemo_gym.cli.default_model import with_default_model
from nemo_gym.cli.eval.driver import drive, driven_counts, load_driver
from nemo_gym.cli.eval.export import Export, exporting
from nemo_gym.cli.eval.forecast import tell_duration
from nemo_gym.cli.eval.interrupts import INTERRUPTED, RunInterrupts, abort_on_server_death, signals_interrupt
from nemo_gym.cli.eval.progress import screen, shown
from nemo_gym.cli.eval.results import report
from nemo_gym.cli.eval.scores import kept_scores
from nemo_gym.cli.eval.settings import EvalRunConfig, eval_run_config, input_of
from nemo_gym.cli.settings import CheckedParser, reserve_head_port
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.rollout_collection import (
    _attach_trajectory_record,
    _get_max_rollout_attempts,
    observer_for,
    require_same_run,
)
from nemo_gym.secret_utils import recursively_hide_secrets
from nemo_gym.server_utils import ServerClient

if TYPE_CHECKING:
    from nemo_gym._app.launch import Served

_LONGEST_ROLLOUT_S = 24 * 3600.0
_OTHER_FILES = 512
_FEWEST_CONNECTIONS, _MOST_CONNECTIONS = 64, 100 * 1024


@dataclass(frozen=True)
class _Todo:
    """What this invocation has to play, and where its manifest starts."""

    rows: Iterator[Row]
    count: int
    manifest: Manifest
    resumed: bool
    summary: RunSummary
    """What the run has come to before."""
    requested: Requested | None = None
    """What the whole run was asked for, where it is known without a look at the plan."""


def run(overrides: list[str]) -> int:
    """Collect rollouts; 0 only if all are scored, or as many as may fail are allowed to."""
    no_serve = any(token.lstrip("+") == "no_serve=true" for token in overrides)
    overrides = overrides if no_serve else with_default_model(overrides)
    set_global_config_dict(GlobalConfigDictParserConfig(overrides=overrides, offline=no_serve), CheckedParser)
    config = get_global_config_dict()
    settings = eval_run_config(config)
    if not settings.no_serve and not settings.rollout_collection_driver:
        GlobalConfigDictParser().raise_on_no_server_instances(config)
    _allow_many_connections(config, settings)
    # On its way out Python would search all that is left for cycles: most of a second, for nothing.
    atexit.register(gc.freeze)
    paths = RunPaths.of(settings.output_jsonl_fpath)
    with exporting(config, rollouts_too=settings.upload_rollouts) as export, signals_interrupt():
        try:
            if settings.rollout_collection_driver:
                return run_beside_servers(_drive(config, settings, paths, export, _find_running(settings)))
            with run_lock(paths):
                # Before the event loop, in which a signal would be heard only when this has ended.
                client = _find_running(settings)
                todo = _what_to_do(config, settings, paths, _find_agents(config, settings, client))
                return run_beside_servers(_run(config, settings, paths, export, todo, client))
        except asyncio.CancelledError:
            return INTERRUPTED
        except KeyboardInterrupt:
            render.note("\nstopped before a rollout was played")
            return INTERRUPTED
        except SystemExit as raised:
            raise GymError(
                f"the run was left by {describe_error_with_place(raised)} before its rollouts were accounted for\n"
                "hint: raise an ordinary exception there; then run the same command again with `--resume`"
            ) from raised
        finally:
            paths.materialized_draft.unlink(missing_ok=True)  # there if the run did not begin


async def _run(
    config: DictConfig,
    settings: EvalRunConfig,
    paths: RunPaths,
    export: Export,
    todo: _Todo,
    running: ServerClient | None,
) -> int:
    """Play what is to be done, with the servers behind the client `running` or else with the config's own."""
    control, max_attempts = RunControl(), _get_max_rollout_attempts()
    given_up = todo.manifest.counts.failed
    limiter: Limiter = (
        FixedLimit(settings.num_samples_in_parallel) if settings.num_samples_in_parallel else AdaptiveLimit()
    )
    with (
        screen(quiet=settings.quiet) as on,
        RunInterrupts(control, on).heeded() as interrupts,
        rare_collections(),
        kept_scores(paths, complete=not todo.resumed) as scores,
    ):
        async with _client(config, settings, running) as (client, served):
            begin = Journal.resume if todo.resumed else Journal.begin
            summary, before = todo.summary, todo.manifest.counts.requested - todo.count
            with begin(paths, todo.manifest) as journal:
                rows = todo.rows if settings.quiet else await tell_duration(client, todo.rows, todo.count)
                with (
                    shown(summary, limiter, on, before=before) as count,
                    abort_on_server_death(served, control) as hold_failures_s,
                    interrupts.playing(settings.rollout_timeout_seconds),
                ):

                    def note(outcome: Outcome) -> None:
                        nonlocal given_up
                        count(outcome)
                        given_up += isinstance(outcome, Failed) and is_given_up(outcome, max_attempts)

                    counts = await collect(
                        rows,
                        lambda agent, row: client.post(agent, "/run", json=row, timeout=_LONGEST_ROLLOUT_S),
                        journal,
                        limiter,
                        control,
                        CollectSettings(
                            settings.rollout_timeout_seconds,
                            settings.max_failure_rate,
                            settings.fail_on_tool_error,
                            give_up_on_endpoint=True,
                            endpoint_must_be_there=settings.no_serve and not settings.wait_for_model,
                            explain_lateness=interrupts.explain_lateness,
                            hold_failures_s=hold_failures_s,
                        ),
                        scores.noting(note),
                        observer_for(client),
                        _attach_trajectory_record,
                    )
                if control.is_stopping:
                    journal.close("interrupted")
            # What a run was given up for is said at the very end.
            for kind, number, example in summary.failure_table()[1:] if control.abort_reason is None else ():
                render.note(f"{number} × {kind}, for example: {example}")
            ask_for = _agents_to_ask(client, served)
            await _report(paths, counts, client, settings, export, ask_for, scores.rollouts(), todo.requested)
    return _exit_code(counts, control, settings, given_up)


async def _drive(
    config: DictConfig, settings: EvalRunConfig, paths: RunPaths, export: Export, running: ServerClient | None
) -> int:
    """Let the user's own function collect, then account for what it wrote."""
    named = settings.rollout_collection_driver or ""
    driver = load_driver(named)
    # Without either, the driver has tasks of its own.
    if settings.input_jsonl_fpath is not None or settings.split is not None:
        source = input_of(settings, config, render.note)
        settings = settings.model_copy(update={"input_jsonl_fpath": source})
    async with _client(config, settings, running) as (client, served):
        driving = drive(driver, settings, config)
        await (driving if served is None else served.running.run_unless_dead(driving))
        counts = driven_counts(paths, named)
        await _report(paths, counts, client, settings, export, _agents_to_ask(client, served), paths.output)
    return _exit_code(counts, RunControl(), settings)


async def _report(
    paths: RunPaths,
    counts: Counts,
    client: ServerClient,
    settings: EvalRunConfig,
    export: Export,
    ask_for: frozenset[str] | None,
    rollouts: Path,
    requested: Requested | None = None,
) -> None:
    aggregates: list[AgentAggregate] = []
    if not settings.disable_aggregation:
        aggregates = await report(
            paths,
            counts,
            client,
            as_json=settings.json_summary,
            ask_for=ask_for,
            rollouts=rollouts,
            requested=requested,
        )
    await export(aggregates, paths.output)


def _agents_to_ask(client: ServerClient, served: "Served | None") -> frozenset[str] | None:
    """Return the agents that are asked for metrics of their own; None for all."""
    if served is None:
        return None
    if served.has_lost_one:
        return frozenset()  # who answers may have to ask the dead one
    from nemo_gym._app.launch import agents_to_ask

    return agents_to_ask(client.global_config_dict)


def _exit_code(counts: Counts, control: RunControl, settings: EvalRunConfig, given_up: int = 0) -> int:
    """Say what is missing of a run, and what can be done about it; `given_up` failures are not played again."""
    if control.abort_reason is not None and counts.scored < counts.requested:
        render.error(f"the run was given up.\n{control.abort_reason}")
        return 1
    not_played = counts.requested - counts.scored - counts.failed
    if not_played:
        render.note(f"{not_played} of {counts.requested} rollouts were not played.")
        render.note("hint: run the same command again with `--resume`")
        return INTERRUPTED if control.is_stopping else 1
    allowed = settings.failures_allowed(counts.requested)
    if counts.failed > allowed:
        again = f"{counts.failed - given_up} of them" if given_up < counts.failed else "none of them"
        why = f" ({given_up} failed for good, or as often as `NEMO_GYM_MAX_ROLLOUT_ATTEMPTS` allows)"
        render.note(
            f"{counts.failed} of {counts.requested} rollouts have no reward ({allowed} may); see the failures file.\n"
            f"hint: `--resume` plays {again + why if given_up else 'them'} again; `--allow-failures` accepts some"
        )
        return 1
    return 0


# --- what to play -----------------------------------------------------------------------------------------------------


def _what_to_do(config: DictConfig, settings: EvalRunConfig, paths: RunPaths, agents: list[str]) -> _Todo:
    source = input_of(settings, config, render.note)
    if settings.resume_from_cache:
        if can_resume(paths):
            return _resumed(config, settings, paths, source)
        render.note(f"nothing to resume at {paths.output}: beginning anew")
    plan = materialize(read_input(source), settings.expand_settings(agents), source, paths)
    for warning in plan.warnings:
        render.note(warning)
    counts = Counts(requested=plan.rollouts, not_played=plan.rollouts)
    manifest = _manifest(config, settings, source, paths.materialized_draft, counts)
    requested = Requested(dict[str | None, int](plan.agents.items()), plan.per_task)
    rows, summary = read_by_repeat(paths.materialized), RunSummary(plan.rollouts)
    return _Todo(rows, plan.rollouts, manifest, resumed=False, summary=summary, requested=requested)


def _resumed(config: DictConfig, settings: EvalRunConfig, paths: RunPaths, source: str) -> _Todo:
    summary = RunSummary(None)
    resumption = what_is_left(paths, _get_max_rollout_attempts(), summary.add_earlier)
    summary.requested = resumption.left
    for notice in resumption.notices:
        render.note(notice)
    render.note(str(resumption))
    before = read_manifest(paths.manifest)
    manifest = _manifest(config, settings, source, paths.materialized, resumption.counts).resuming(before)
    require_same_run(before, manifest, paths)
    return _Todo(resumption.todo(), resumption.left, manifest, resumed=True, summary=summary)


def _manifest(config: DictConfig, settings: EvalRunConfig, source: str, materialized: Path, counts: Counts) -> Manifest:
    masked = config.copy()
    recursively_hide_secrets(masked)
    plain: Any = OmegaConf.to_container(masked, resolve=False)
    return Manifest(
        counts=counts,
        input=input_identity(source, materialized),
        settings=settings.identity(),
        config=plain,
        git=git_state(Path.cwd()),
    )


def _find_running(settings: EvalRunConfig) -> ServerClient | None:
    """Return a client for the servers that somebody else runs, if the run is to use those."""
    return ServerClient.load_from_global_config() if settings.no_serve else None


def _find_agents(config: DictConfig, settings: EvalRunConfig, running: ServerClient | None) -> list[str]:
    """Return the names of the agents that rows can be played by; the one that was asked for must be among them."""
    config = running.global_config_dict if running is not None else config
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    agents = [instance.name for instance in instances if instance.SERVER_TYPE == "responses_api_agents"]
    if settings.agent_name is not None and settings.agent_name not in agents:
        where = "among the servers that run" if settings.no_serve else "in the config"
        guess = did_you_mean(settings.agent_name, agents)
        raise ConfigError(f"--agent {settings.agent_name}: there is no such agent {where}. {guess}".rstrip())
    return agents


# --- whom to ask ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _client(
    config: DictConfig, settings: EvalRunConfig, running: ServerClient | None
) -> AsyncIterator[tuple[ServerClient, "Served | None"]]:
    """A client for the servers: `running`, or the config's own, which are started for as long as it lasts."""
    from nemo_gym._app.launch import serve_config, wait_for_models
    from nemo_gym._process.http_session import close_global_aiohttp_client

    if running is not None:
        try:
            if settings.wait_for_model:
                # Only then: an endpoint may be in reach of the servers and not of this machine.
                await wait_for_models(running.global_config_dict, render.note, render.count, settings.wait_for_model)
            yield running, None
        finally:
            await close_global_aiohttp_client()
        return
    reserve_head_port(config)
    within_s = settings.seconds_for_models(config)
    async with serve_config(config, render.note, render.count, models_within_s=within_s) as served:
        yield ServerClient.load_from_global_config(), served


def _allow_many_connections(config: DictConfig, settings: EvalRunConfig) -> None:
    """As many connections and open files as rollouts may run at once."""
    wanted = settings.num_samples_in_parallel or 0
    if wanted > 512 and config.get("global_aiohttp_connector_limit_per_host") is None:
        config["global_aiohttp_connector_limit_per_host"] = 2 * wanted
    files = allow_open_files()
    if files is None or config.get("global_aiohttp_connector_limit") is not None:
        return
    connections = max(_FEWEST_CONNECTIONS, files - _OTHER_FILES)
    if connections >= _MOST_CONNECTIONS:
        return
    # A call beyond this waits for a connection; one beyond the system's limit would fail.
    config["global_aiohttp_connector_limit"] = connections
    if connections < wanted:
        render.note(
            f"only {connections} of {wanted} rollouts can have a connection at once: "
            f"this process may open {files} files\nhint: raise the limit with `ulimit -Hn`, or lower --concurrency"
        )
