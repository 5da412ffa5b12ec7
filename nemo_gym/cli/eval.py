# SPDX-License-Identifier: Apache-2.0
"""`gym eval run`: plan the rollouts, start or find the servers, play what is left, account for all of it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._results.summary import RunSummary
from nemo_gym._rollouts.collect import CollectSettings, collect
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.dispatch import rare_collections
from nemo_gym._rollouts.expand import materialize
from nemo_gym._rollouts.inputs import read_input
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import AdaptiveLimit, FixedLimit, Limiter
from nemo_gym._rollouts.lock import run_lock
from nemo_gym._rollouts.manifest import Counts, Manifest, differences, git_state, input_identity, read_manifest
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.resume import ResumeError, can_resume, planned, what_is_left
from nemo_gym._rollouts.types import Row
from nemo_gym.cli import render
from nemo_gym.cli.eval_settings import EvalRunConfig, eval_run_config, input_of
from nemo_gym.cli.progress import shown
from nemo_gym.cli.results import report
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.rollout_collection import _get_max_rollout_attempts
from nemo_gym.secret_utils import recursively_hide_secrets
from nemo_gym.server_utils import ServerClient

_LONGEST_ROLLOUT_S = 24 * 3600.0


@dataclass(frozen=True)
class _Todo:
    """What this invocation has to play, and where its manifest starts."""

    rows: Iterator[Row]
    count: int
    manifest: Manifest
    resumed: bool


def run(overrides: list[str]) -> int:
    """Collect rollouts; 0 only if all are scored, or as many as may fail are allowed to."""
    sys.argv[1:] = overrides
    no_serve = any(token.lstrip("+") == "no_serve=true" for token in overrides)
    set_global_config_dict(GlobalConfigDictParserConfig(offline=no_serve))
    config = get_global_config_dict()
    settings = eval_run_config(config)
    if not settings.no_serve:
        GlobalConfigDictParser().raise_on_no_server_instances(config)
    _allow_many_connections(config, settings)
    paths = RunPaths.of(settings.output_jsonl_fpath)
    import uvloop

    with run_lock(paths):
        return uvloop.run(_run(config, settings, paths))


async def _run(config: DictConfig, settings: EvalRunConfig, paths: RunPaths) -> int:
    todo = _what_to_do(config, settings, paths)
    control = RunControl()
    limiter: Limiter = (
        FixedLimit(settings.num_samples_in_parallel) if settings.num_samples_in_parallel else AdaptiveLimit()
    )
    with _interrupts_go_to(control), rare_collections():
        async with _client(config, settings) as client:
            begin = Journal.resume if todo.resumed else Journal.begin
            summary = RunSummary(todo.count)
            with begin(paths, todo.manifest) as journal, shown(summary, limiter, quiet=settings.quiet) as count:
                counts = await collect(
                    todo.rows,
                    lambda agent, row: client.post(agent, "/run", json=row, timeout=_LONGEST_ROLLOUT_S),
                    journal,
                    limiter,
                    control,
                    CollectSettings(settings.rollout_timeout_seconds, settings.max_failure_rate),
                    count,
                )
                if control.is_stopping:
                    journal.close("interrupted")
            for row in summary.failure_table():
                render.note("  ".join(row))
            if not settings.disable_aggregation:
                await report(paths, counts, client, as_json=settings.json_summary)
    return _exit_code(counts, control, settings)


def _exit_code(counts: Counts, control: RunControl, settings: EvalRunConfig) -> int:
    if control.abort_reason is not None:
        render.error(f"the run was given up.\n{control.abort_reason}")
        return 1
    if counts.not_played:
        render.note(f"{counts.not_played} of {counts.requested} rollouts were not played.")
        render.note("hint: run the same command again with `--resume`")
        return 130 if control.is_stopping else 1
    allowed = settings.failures_allowed(counts.requested)
    if counts.failed > allowed:
        render.note(
            f"{counts.failed} of {counts.requested} rollouts have no reward ({allowed} may); see the failures file.\n"
            "hint: `--resume` plays them again; `--allow-failures` accepts some"
        )
        return 1
    return 0


# --- what to play -----------------------------------------------------------------------------------------------------


def _what_to_do(config: DictConfig, settings: EvalRunConfig, paths: RunPaths) -> _Todo:
    source = input_of(settings, config, render.note)
    if settings.resume_from_cache:
        if can_resume(paths):
            return _resumed(config, settings, paths, source)
        render.note(f"nothing to resume at {paths.output}: beginning anew")
    agents = None if settings.no_serve else _agents(config)
    plan = materialize(read_input(source), settings.expand_settings(agents), source, paths)
    for warning in plan.warnings:
        render.note(warning)
    counts = Counts(requested=plan.rollouts, not_played=plan.rollouts)
    manifest = _manifest(config, settings, source, paths.materialized_draft, counts)
    return _Todo(planned(paths), plan.rollouts, manifest, resumed=False)


def _resumed(config: DictConfig, settings: EvalRunConfig, paths: RunPaths, source: str) -> _Todo:
    resumption = what_is_left(paths, _get_max_rollout_attempts())
    for notice in resumption.notices:
        render.note(notice)
    render.note(str(resumption))
    before = read_manifest(paths.manifest)
    manifest = _manifest(config, settings, source, paths.materialized, resumption.counts).resuming(before)
    if before is not None and (changed := differences(before, manifest)):
        raise ResumeError(
            f"{paths.output} belongs to a different run:\n" + "\n".join(f"  {line}" for line in changed) + "\n"
            "hint: repeat the original command, choose another output, or run without `--resume` to begin anew"
        )
    return _Todo(resumption.todo(), resumption.left, manifest, resumed=True)


def _manifest(config: DictConfig, settings: EvalRunConfig, source: str, materialized: Path, counts: Counts) -> Manifest:
    masked = config.copy()
    recursively_hide_secrets(masked)
    plain: Any = OmegaConf.to_container(masked, resolve=False)
    identity = (
        "agent_name",
        "limit",
        "num_repeats",
        "num_repeats_add_seed",
        "responses_create_params",
        "prompt_config",
    )
    return Manifest(
        counts=counts,
        input=input_identity(source, materialized),
        settings=settings.model_dump(mode="json", include=set(identity)),
        config=plain,
        git=git_state(Path.cwd()),
    )


def _agents(config: DictConfig) -> list[str]:
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    return [instance.name for instance in instances if instance.SERVER_TYPE == "responses_api_agents"]


# --- whom to ask ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _client(config: DictConfig, settings: EvalRunConfig) -> AsyncIterator[ServerClient]:
    """A client for the servers: those that run, or the config's own, started for as long as it lasts."""
    from nemo_gym.http_session import close_global_aiohttp_client

    if settings.no_serve:
        try:
            yield await asyncio.to_thread(ServerClient.load_from_global_config)
        finally:
            await close_global_aiohttp_client()
        return
    from nemo_gym.launch import serve_config

    async with serve_config(config, render.note):
        yield ServerClient.load_from_global_config()


def _allow_many_connections(config: DictConfig, settings: EvalRunConfig) -> None:
    """As many connections and open files as rollouts may run at once."""
    wanted = settings.num_samples_in_parallel or 0
    if wanted > 512 and config.get("global_aiohttp_connector_limit_per_host") is None:
        config["global_aiohttp_connector_limit_per_host"] = 2 * wanted
    import resource  # not on every platform

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _interrupts_go_to(control: RunControl) -> Iterator[None]:
    """The first Ctrl-C stops dispatching, the second cancels what runs, a third ends the process as it stands."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if control.is_cancelling:
            os._exit(130)
        state = control.request_stop()
        render.note(
            "\nstopping: rollouts that run may finish; Ctrl-C again cancels them"
            if state == "stopping"
            else "\ncancelling what runs; the record is kept"
        )

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
