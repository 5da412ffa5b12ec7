# SPDX-License-Identifier: Apache-2.0
"""Collect with the user's own function: `rollout_collection_driver`, given as `module:function`.

It is awaited with the settings of the run and the whole resolved config while the servers run, and it writes the
rollouts file. Its rollouts are counted and aggregated like any others.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._results.result_rows import read_results, read_reward
from nemo_gym._rollouts.compact import KeySet
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.run_manifest import Counts
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym.cli import render
from nemo_gym.cli.eval.results import Export, choose_exit_code, report
from nemo_gym.cli.eval.run_settings import EvalRunConfig, choose_input
from nemo_gym.cli.eval.servers import choose_agents_to_ask, find_running, reach_servers
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.rollout_collection import RolloutCollectionConfig


async def collect_by_driver(config: DictConfig, settings: EvalRunConfig, paths: RunPaths, export: Export) -> int:
    """Let the user's own function collect, account for what it wrote, and return the exit code."""
    named = settings.rollout_collection_driver or ""
    driver = load_driver(named)
    # Without either, the driver brings its own tasks.
    if settings.input_jsonl_fpath is not None or settings.split is not None:
        source = choose_input(settings, config, render.note)
        settings = settings.model_copy(update={"input_jsonl_fpath": source})
    async with reach_servers(config, settings, find_running(settings)) as (client, served):
        driving = drive(driver, settings, config)
        await (driving if served is None else served.running.run_unless_dead(driving))
        counts = count_driven(paths, named)
        aggregates = await report(paths, counts, client, settings, ask_for=choose_agents_to_ask(client, served))
        await export(aggregates, paths.output)
    return choose_exit_code(counts, RunControl(), settings)


async def drive(driver: Callable[..., Any], settings: RolloutCollectionConfig, config: DictConfig) -> None:
    """Let `driver` collect."""
    returned = driver(settings, OmegaConf.to_container(config, resolve=True))
    if inspect.isawaitable(returned):
        await returned


def load_driver(spec: str) -> Callable[..., Any]:
    """Import the function that `module:function` names."""
    module_name, separator, name = spec.partition(":")
    if not (module_name and separator and name):
        raise ConfigError(f"rollout_collection_driver is {spec!r}.\nhint: write it as `module.path:function`")
    try:
        driver = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"rollout_collection_driver {spec!r} cannot be loaded: {error}\n"
            "hint: the module has to be importable from here: install it, or add its folder to PYTHONPATH"
        ) from error
    if not callable(driver):
        raise ConfigError(f"rollout_collection_driver {spec!r} is a {type(driver).__name__}, not a function")
    loaded: Callable[..., Any] = driver
    return loaded


def count_driven(paths: RunPaths, driver: str) -> Counts:
    """Count the results of a driver's run from the files that it left."""
    if not paths.output.is_file():
        raise GymError(
            f"the driver {driver!r} has ended, but there is no {paths.output}.\n"
            "hint: a driver writes its rollouts to `output_jsonl_fpath` of the config that it is given"
        )
    scored = KeySet()
    failed = KeySet()
    for result in read_results(paths.output):
        if read_reward(result.row) is None:
            failed.add(result.key)
        else:
            scored.add(result.key)
    if paths.failures.is_file():
        for result in read_results(paths.failures):
            if result.key not in scored:
                failed.add(result.key)
    ended = len(scored) + len(failed)
    requested = ended
    if paths.materialized.is_file():
        requested = max(ended, sum(1 for _ in read_results(paths.materialized)))
    return Counts(requested=requested, scored=len(scored), failed=len(failed), not_played=requested - ended)
