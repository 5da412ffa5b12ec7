# SPDX-License-Identifier: Apache-2.0
"""`gym eval reverify`: let the verifiers of a config score stored responses again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._results.reverify import Reverification, output_for, plan_reverification, require_output
from nemo_gym._results.summary import RunSummary
from nemo_gym._rollouts.collect import CollectSettings, collect
from nemo_gym._rollouts.compact import KeySet
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import FixedLimit
from nemo_gym._rollouts.lock import run_lock
from nemo_gym._rollouts.manifest import Counts, Manifest, input_identity
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.types import Row, Scored, key_of
from nemo_gym._serving.event_loop import run_beside_servers
from nemo_gym._util.jsonl import read_rows, write_rows
from nemo_gym.cli import render
from nemo_gym.cli.env.check_subject import ANY_MODEL, models_of, stand_in_of
from nemo_gym.cli.eval.interrupts import INTERRUPTED, RunInterrupts, abort_on_server_death, signals_interrupt
from nemo_gym.cli.eval.progress import Screen, screen, shown
from nemo_gym.cli.eval.results import report
from nemo_gym.cli.settings import CheckedParser, reserve_head_port, validated
from nemo_gym.config_types import ConfigError
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.rollout_reverification import RolloutReverificationConfig
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

_DEFAULT_PARALLEL = 64


def reverify(overrides: list[str]) -> int:
    """Score again; 0 only if everything was scored."""
    # Nobody plays: a config that names no model to play with will do.
    source = GlobalConfigDictParserConfig(overrides=overrides, initial_global_config_dict=ANY_MODEL)
    set_global_config_dict(source, CheckedParser)
    config = get_global_config_dict()
    GlobalConfigDictParser().raise_on_no_server_instances(config)
    leave_out_players(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    settings = validated(RolloutReverificationConfig, plain)
    with signals_interrupt():
        try:
            return run_beside_servers(_reverify(config, settings))
        except asyncio.CancelledError:
            return INTERRUPTED


async def _reverify(config: DictConfig, settings: RolloutReverificationConfig) -> int:
    from nemo_gym._app.launch import serve_config

    reserve_head_port(config)
    verifiers, control = verifiers_of(config), RunControl()
    with screen(quiet=settings.quiet) as on, RunInterrupts(control, on).heeded() as interrupts:
        async with serve_config(config, render.note, render.count) as served:
            client = ServerClient.load_from_global_config()
            output = output_for(settings.output_jsonl_fpath, await _modes(client, verifiers), force=settings.force)
            keep = settings.resume_from_cache or settings.append
            require_output(output, overwrite=settings.overwrite, resume=keep)
            paths = RunPaths.of(output)
            inputs = settings.materialized_inputs_jsonl_fpath or RunPaths.of(settings.rollouts_jsonl_fpath).materialized
            plan = plan_reverification(
                inputs,
                settings.rollouts_jsonl_fpath,
                output,
                judge_failed_only=settings.judge_failed_only,
                limit=settings.limit,
                resume=settings.resume_from_cache,
                append=settings.append,
            )
            with run_lock(paths):
                journal = _begun(plan, paths, inputs, keep=keep and bool(plan.n_done))
                verify, workers = _verify_with(client, verifiers), settings.num_samples_in_parallel or _DEFAULT_PARALLEL
                with abort_on_server_death(served, control) as hold_failures_s, interrupts.playing():
                    counts = await _score(plan, journal, verify, workers, on, control, hold_failures_s)
            if not settings.disable_aggregation:
                ask_for = frozenset[str]() if served.has_lost_one else None
                await report(paths, counts, client, as_json=settings.json_summary, ask_for=ask_for)
    if counts.scored == counts.requested:
        return 0
    if control.abort_reason is not None:
        render.error(f"the run was given up.\n{control.abort_reason}")
        return 1
    if control.is_stopping and counts.not_played:
        render.note(f"{counts.not_played} of {counts.requested} were not scored again.")
        render.note("hint: run the same command again with `--resume`")
        return INTERRUPTED
    return 1


async def _score(
    plan: Reverification,
    journal: Journal,
    verify: Callable[[str, Row], Awaitable[Any]],
    workers: int,
    on: Screen | None,
    control: RunControl,
    hold_failures_s: float,
) -> Counts:
    """Score what is to be scored, into the journal."""
    limiter, summary = FixedLimit(workers), RunSummary(len(plan.todo))
    settings = CollectSettings(hold_failures_s=hold_failures_s)
    rows = (payload.row for payload in plan.payloads())
    with journal, shown(summary, limiter, on, before=plan.n_done + plan.n_seeds) as count:
        return await collect(rows, verify, journal, limiter, control, settings, count)


def _begun(plan: Reverification, paths: RunPaths, inputs: str | Path, *, keep: bool) -> Journal:
    """The record of the new scores, with the rollouts in it that are copied as they are."""
    not_played = plan.n_requested - plan.n_done
    counts = Counts(requested=plan.n_requested, scored=plan.n_done, not_played=not_played)
    if keep:
        journal = Journal.resume(paths, Manifest(counts=counts, input=input_identity(plan.source, paths.output)))
    else:
        wanted = KeySet()
        for key in (*(one.key for one in plan.todo), *map(key_of, plan.seeds())):
            wanted.add(key)
        write_rows(paths.materialized_draft, (row for row in read_rows(inputs) if key_of(row) in wanted))
        manifest = Manifest(counts=counts, input=input_identity(plan.source, paths.materialized_draft))
        journal = Journal.begin(paths, manifest)
    for row in plan.seeds():
        journal.record(Scored(row, row, 0, 0.0))
    return journal


def verifiers_of(config: DictConfig) -> dict[str, str]:
    """The resources server of each agent, by the agent's block or because there is only one."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    servers = [instance.name for instance in instances if instance.SERVER_TYPE == "resources_servers"]
    found = {}
    for instance in instances:
        if instance.SERVER_TYPE == "responses_api_agents":
            named = (instance.get_inner_run_server_config_dict().get("resources_server") or {}).get("name")
            if named or len(servers) == 1:
                found[instance.name] = str(named or servers[0])
    if not found:
        raise ConfigError("no agent of the config has a resources server that could verify its rollouts")
    return found


def leave_out_players(config: DictConfig) -> None:
    """Take the models out of `config` that no verifier asks."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    verifiers = [plain[one.name] for one in instances if one.SERVER_TYPE == "resources_servers"]
    asked, missing = models_of(verifiers), stand_in_of(config)
    if missing is not None and missing.name in asked:
        raise ConfigError(
            f"a verifier asks the model {missing.name!r}, which the config does not define\n"
            "hint: add its config, as for `gym eval run` (`--model-type`, `--model`, `--model-url`)"
        )
    for instance in instances:
        if instance.SERVER_TYPE == "responses_api_models" and instance.name not in asked:
            del config[instance.name]


async def _modes(client: ServerClient, verifiers: dict[str, str]) -> dict[str, str]:
    async def mode(server: str) -> str:
        response = await client.get(server, "/reverify_mode")
        await raise_for_status(response)
        return str(await get_response_json(response))

    servers = sorted(set(verifiers.values()))
    return dict(zip(servers, await asyncio.gather(*map(mode, servers)), strict=True))


def _verify_with(client: ServerClient, verifiers: dict[str, str]) -> Callable[[str, Row], Awaitable[Any]]:
    async def verify(agent: str, row: Row) -> Any:
        server = verifiers.get(agent)
        if server is None:
            raise ConfigError(f"the config has no agent {agent!r}, so nobody verifies its rollouts")
        return await client.post(server, "/verify", json=row)

    return verify
