# SPDX-License-Identifier: Apache-2.0
"""`gym eval run`: plan the rollouts, start or find the servers, run what is left, and account for all of it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._results.aggregate_files import Requested
from nemo_gym._results.run_summary import RunSummary
from nemo_gym._rollouts.collect import CollectSettings, Run, RunIdentity, collect, plan_or_resume
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.limiter import AdaptiveLimit, FixedLimit, Limiter
from nemo_gym._rollouts.outcomes import Outcome
from nemo_gym._rollouts.rollout_calls import bound_staleness, find_observer
from nemo_gym._rollouts.run_manifest import read_git_state
from nemo_gym._rollouts.run_paths import RunPaths, lock_run
from nemo_gym._servers.processes.event_loop import interrupt_on_signals, run_beside_servers
from nemo_gym._transport.failures import describe_error_with_place
from nemo_gym._util.garbage import collect_rarely, skip_collection_at_exit
from nemo_gym.cli import render
from nemo_gym.cli.default_model import with_default_model
from nemo_gym.cli.eval.driver import collect_by_driver
from nemo_gym.cli.eval.forecast import tell_duration
from nemo_gym.cli.eval.interrupts import RunInterrupts, abort_on_server_death
from nemo_gym.cli.eval.progress import open_screen, show_progress
from nemo_gym.cli.eval.results import INTERRUPTED, Export, Scores, choose_exit_code, keep_scores, open_export, report
from nemo_gym.cli.eval.run_settings import EvalRunConfig, choose_input, drop_prepared_data_on_error, read_settings
from nemo_gym.cli.eval.servers import (
    allow_many_connections,
    choose_agents_to_ask,
    find_agents,
    find_running,
    open_play,
    reach_servers,
)
from nemo_gym.cli.settings import make_parser
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.rollout_collection import _get_max_rollout_attempts
from nemo_gym.secret_utils import recursively_hide_secrets
from nemo_gym.server_utils import ServerClient


def run(overrides: list[str]) -> int:
    """Collect rollouts; return 0 only if all are scored, or no more failed than allowed."""
    no_serve = any(token.lstrip("+") == "no_serve=true" for token in overrides)
    overrides = overrides if no_serve else with_default_model(overrides)
    parser = make_parser(EvalRunConfig, needs_servers=not no_serve)
    set_global_config_dict(GlobalConfigDictParserConfig(overrides=overrides, offline=no_serve), parser)
    config = get_global_config_dict()
    settings = read_settings(config)
    allow_many_connections(config, settings)
    skip_collection_at_exit()
    paths = RunPaths.of(settings.output_jsonl_fpath)
    with open_export(config, with_rollouts=settings.upload_rollouts) as export, interrupt_on_signals():
        try:
            if settings.rollout_collection_driver:
                return run_beside_servers(collect_by_driver(config, settings, paths, export))
            with lock_run(paths):
                # Before the event loop, which would handle a signal only after this has finished.
                running = find_running(settings)
                todo, summary = _plan(config, settings, paths, find_agents(config, settings, running))
                return run_beside_servers(_evaluate(config, settings, todo, summary, running, export))
        except asyncio.CancelledError:
            return INTERRUPTED
        except KeyboardInterrupt:
            render.note("\nstopped before any rollout ran")
            return INTERRUPTED
        except SystemExit as raised:
            raise GymError(
                f"the run was left by {describe_error_with_place(raised)} before its rollouts were accounted for\n"
                "hint: raise an ordinary exception there; then run the same command again with `--resume`"
            ) from raised


def _plan(config: DictConfig, settings: EvalRunConfig, paths: RunPaths, agents: list[str]) -> tuple[Run, RunSummary]:
    """Plan the run or resume it; return it with the summary of its earlier results."""
    summary = RunSummary(None)
    masked = config.copy()
    recursively_hide_secrets(masked)
    plain: Any = OmegaConf.to_container(masked, resolve=False)
    with drop_prepared_data_on_error(settings):
        source = choose_input(settings, config, render.note)
        planned = plan_or_resume(
            paths,
            RunIdentity(source, settings.identity(), plain, read_git_state(Path.cwd())),
            lambda: settings.expand_settings(agents),
            resume=settings.resume_from_cache,
            max_attempts=_get_max_rollout_attempts(),
            notice=render.note,
            on_result=summary.add_earlier,
        )
    summary.requested = planned.left
    return planned, summary


async def _evaluate(
    config: DictConfig,
    settings: EvalRunConfig,
    todo: Run,
    summary: RunSummary,
    running: ServerClient | None,
    export: Export,
) -> int:
    """Run what is left, with the servers behind the client `running` or else with the config's own."""
    control = RunControl()
    async with AsyncExitStack() as run:
        screen = run.enter_context(open_screen(quiet=settings.quiet))
        interrupts = run.enter_context(RunInterrupts(control, screen).catch())
        run.enter_context(collect_rarely())
        scores = run.enter_context(keep_scores(todo.paths, complete=not todo.is_resumed))
        client, served = await run.enter_async_context(reach_servers(config, settings, running))

        async with AsyncExitStack() as play:
            observer = find_observer(client)
            versions = None if served is None else served.policy_version
            play_row = await play.enter_async_context(
                open_play(config, settings, client, observer, control, interrupts, versions)
            )
            limiter = await play.enter_async_context(_open_limiter(settings, client, control))
            journal = play.enter_context(todo.open_journal())
            if not settings.quiet:
                await tell_duration(client, todo)
            count = play.enter_context(show_progress(summary, limiter, screen, before=todo.before))
            hold_failures_s = play.enter_context(abort_on_server_death(served, control))
            play.enter_context(interrupts.guard_play(settings.rollout_timeout_seconds))
            bounds = CollectSettings(
                settings.max_failure_rate,
                give_up_on_endpoint=True,
                check_endpoint=settings.no_serve and not settings.wait_for_model,
                hold_failures_s=hold_failures_s,
            )
            note = partial(_note_outcome, scores, count)
            counts = await collect(todo.rows, play_row, journal, limiter, control, bounds, note, observer)

        if control.abort_reason is None:  # otherwise the reason is printed at the very end
            for kind, number, example in summary.failure_table()[1:]:
                render.note(f"{number} × {kind}, for example: {example}")
        requested = None
        if todo.plan is not None:
            requested = Requested(dict[str | None, int](todo.plan.agents.items()), todo.plan.per_task)
        aggregates = await report(
            todo.paths,
            counts,
            client,
            settings,
            ask_for=choose_agents_to_ask(client, served),
            rollouts=scores.find_rollouts(),
            requested=requested,
            task_metrics=settings.task_metrics,
        )
        await export(aggregates, todo.paths.output)
    return choose_exit_code(counts, control, settings, journal.given_up)


def _open_limiter(
    settings: EvalRunConfig, client: ServerClient, control: RunControl
) -> AbstractAsyncContextManager[Limiter]:
    """Limit the rollouts at once to the number given or to what the endpoint takes, and hold back stale ones."""
    limit: Limiter = AdaptiveLimit()
    if settings.num_samples_in_parallel is not None:
        limit = FixedLimit(settings.num_samples_in_parallel)
    gate = settings.make_staleness_gate()
    return bound_staleness(limit, gate, client, settings.policy_version_timeout_seconds, control.abort)


def _note_outcome(scores: Scores, count: Callable[[Outcome], None], outcome: Outcome) -> None:
    scores.add(outcome)
    count(outcome)
