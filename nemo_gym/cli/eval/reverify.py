# SPDX-License-Identifier: Apache-2.0
"""`gym eval reverify`: let the verifiers of a config score stored responses again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._results.reverify import Reverification, choose_output, plan_reverification, require_output
from nemo_gym._results.run_summary import RunSummary
from nemo_gym._rollouts.collect import CollectSettings, Run, collect, take_over_plan
from nemo_gym._rollouts.compact import KeySet
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.limiter import FixedLimit
from nemo_gym._rollouts.outcomes import Row, Scored, key_of
from nemo_gym._rollouts.play import Player
from nemo_gym._rollouts.run_paths import RunPaths, lock_run
from nemo_gym._servers.processes.event_loop import interrupt_on_signals, run_beside_servers
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym._util.masked_rows import has_no_measurement
from nemo_gym._util.row_keys import MASK_SAMPLE_KEY, RESPONSE_FACTS
from nemo_gym.cli import render
from nemo_gym.cli.default_model import find_models
from nemo_gym.cli.env.check import find_stand_in
from nemo_gym.cli.eval.interrupts import RunInterrupts, abort_on_server_death
from nemo_gym.cli.eval.progress import open_screen, show_progress
from nemo_gym.cli.eval.results import INTERRUPTED, report
from nemo_gym.cli.settings import make_parser, reserve_head_port, validate_settings
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
    """Score again; return 0 only if everything was scored."""
    # No agent runs, so the config needs no policy model.
    any_model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    start = GlobalConfigDictParserConfig(initial_global_config_dict=any_model, overrides=overrides)
    set_global_config_dict(start, make_parser(RolloutReverificationConfig))
    config = get_global_config_dict()
    GlobalConfigDictParser().raise_on_no_server_instances(config)
    remove_unused_models(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    settings = validate_settings(RolloutReverificationConfig, plain)
    with interrupt_on_signals():
        try:
            return run_beside_servers(_reverify(config, settings))
        except asyncio.CancelledError:
            return INTERRUPTED


async def _reverify(config: DictConfig, settings: RolloutReverificationConfig) -> int:
    from nemo_gym._servers.launching.launch import serve_config

    reserve_head_port(config)
    verifiers = find_verifiers(config)
    control = RunControl()
    with open_screen(quiet=settings.quiet) as screen, RunInterrupts(control, screen).catch() as interrupts:
        async with serve_config(config, render.note, render.count) as served:
            client = ServerClient.load_from_global_config()
            modes = await _ask_for_modes(client, verifiers)
            output = choose_output(settings.output_jsonl_fpath, modes, force=settings.force)
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
            limiter = FixedLimit(settings.num_samples_in_parallel or _DEFAULT_PARALLEL)
            summary = RunSummary(len(plan.todo))
            before = plan.n_done + plan.n_seeds
            with lock_run(paths):
                run = _open_run(plan, paths, inputs, keep=keep and bool(plan.n_done))
                with (
                    abort_on_server_death(served, control) as hold_failures_s,
                    interrupts.guard_play(),
                    run.open_journal() as journal,
                    show_progress(summary, limiter, screen, before=before) as count,
                ):
                    for row in plan.seeds():
                        journal.record(Scored(row, row, 0, 0.0))
                    bounds = CollectSettings(hold_failures_s=hold_failures_s)
                    verify = _verify_with(client, verifiers)
                    play = Player(verify, hand_over=_keep_response_facts).play
                    counts = await collect(run.rows, play, journal, limiter, control, bounds, count)
            ask_for = frozenset[str]() if served.has_lost_one else None
            await report(paths, counts, client, settings, ask_for=ask_for)
    if counts.scored == counts.requested:
        return 0
    if control.abort_reason is not None:
        render.error(f"the run was aborted.\n{control.abort_reason}")
        return 1
    if control.is_stopping and counts.not_played:
        render.note(f"{counts.not_played} of {counts.requested} were not scored again.")
        render.note("hint: run the same command again with `--resume`")
        return INTERRUPTED
    return 1


def _open_run(plan: Reverification, paths: RunPaths, inputs: str | Path, *, keep: bool) -> Run:
    """Open a run of what is to be scored and copied; `keep` adds to existing scores."""
    wanted = KeySet()
    if not keep:
        for key in (*(one.key for one in plan.todo), *map(key_of, plan.seeds())):
            wanted.add(key)
    planned = None if keep else (row for row in read_rows(inputs) if key_of(row) in wanted)
    rows = (payload.row for payload in plan.payloads())
    return take_over_plan(paths, plan.source, rows, plan.n_requested - plan.n_done, plan.n_done, planned)


def find_verifiers(config: DictConfig) -> dict[str, str]:
    """Return the resources server of each agent, from the agent's block, or because there is only one."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    servers = [instance.name for instance in instances if instance.SERVER_TYPE == "resources_servers"]
    found = {}
    for instance in instances:
        if instance.SERVER_TYPE == "responses_api_agents":
            named = (instance.get_inner_run_server_config_dict().get("resources_server") or {}).get("name")
            if named or len(servers) == 1:
                found[instance.name] = str(named or servers[0])
    if not found:
        raise ConfigError("no agent of the config has a resources server that can verify its rollouts")
    return found


def remove_unused_models(config: DictConfig) -> None:
    """Remove the models that no verifier calls from `config`."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    verifiers = [plain[one.name] for one in instances if one.SERVER_TYPE == "resources_servers"]
    asked = find_models(verifiers)
    missing = find_stand_in(config)
    if missing is not None and missing in asked:
        raise ConfigError(
            f"a verifier calls the model {missing!r}, which the config does not define\n"
            "hint: add its config, as for `gym eval run` (`--model-type`, `--model`, `--model-url`)"
        )
    for instance in instances:
        if instance.SERVER_TYPE == "responses_api_models" and instance.name not in asked:
            del config[instance.name]


async def _ask_for_modes(client: ServerClient, verifiers: dict[str, str]) -> dict[str, str]:
    async def ask(server: str) -> str:
        response = await client.get(server, "/reverify_mode")
        await raise_for_status(response)
        return str(await get_response_json(response))

    servers = sorted(set(verifiers.values()))
    return dict(zip(servers, await asyncio.gather(*map(ask, servers)), strict=True))


def _verify_with(client: ServerClient, verifiers: dict[str, str]) -> Callable[[str, Row], Awaitable[Any]]:
    async def verify(agent: str, row: Row) -> Any:
        server = verifiers.get(agent)
        if server is None:
            raise ConfigError(f"the config has no agent {agent!r}, so nothing verifies its rollouts")
        asked = {name: value for name, value in row.items() if name not in RESPONSE_FACTS}
        return await client.post(server, "/verify", json=asked)

    return verify


async def _keep_response_facts(row: Row, result: Row) -> None:
    """Copy what the old row says about its response: a masked sample stays masked."""
    for name in RESPONSE_FACTS:
        if name in row:
            result.setdefault(name, row[name])
    if row.get(MASK_SAMPLE_KEY) and not has_no_measurement(row):
        result[MASK_SAMPLE_KEY] = True  # its tokens are still incomplete, whatever the verifier says now
