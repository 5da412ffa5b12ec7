# SPDX-License-Identifier: Apache-2.0
"""A rehearsal of a launch, `+dry_run=true`: environments are built and servers are made, but none serves."""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from omegaconf import DictConfig

from nemo_gym._app.launch import child_spec, inline_spec, release_ports, share_config, startup_timeout_s
from nemo_gym._app.plan import ServerPlan, build_environments, plan_launch
from nemo_gym._serving.binding import bind
from nemo_gym._serving.host import build
from nemo_gym._serving.processes import ChildSpec, ServerLate, ServerProcess
from nemo_gym._serving.venvs import VenvBuildError
from nemo_gym.cli import render
from nemo_gym.errors import GymError


class DryRunFailed(GymError, RuntimeError):
    """Servers that could not be started."""


def show_plan(config: DictConfig) -> None:
    """Print where each server would run, build the environments, and have each server made as far as before serving.

    Inside a running event loop, as in a Ray actor, this blocks the loop until it is done.
    """
    try:
        plans = plan_launch(config)
        _print(plans)
        failures = _run(_rehearse(config, plans))
    finally:
        release_ports(config)
    if failures:
        raise DryRunFailed("\n\n".join(failures))


def _run(work: Coroutine[Any, Any, list[str]]) -> list[str]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as beside_the_loop:
        return beside_the_loop.submit(asyncio.run, work).result()


async def _rehearse(config: DictConfig, plans: Sequence[ServerPlan]) -> list[str]:
    """Return what goes wrong with each server."""
    failures = []
    try:
        await build_environments(config, plans, render.note)
    except VenvBuildError as error:
        failures.append(str(error))
    failures += _inline_failures(config, plans)
    return [*failures, *await _process_failures(config, plan_launch(config))]


def _print(plans: Sequence[ServerPlan]) -> None:
    width = max(len(plan.name) for plan in plans)
    for plan in plans:
        unbuilt = "" if plan.venv is None or plan.venv.built else "; its environment is built first"
        render.data(f"{plan.name:{width}}  {plan.placement:8}  {plan.url}  {plan.why}{unbuilt}")
    here = sum(plan.placement == "inline" for plan in plans)
    own = sum(plan.placement == "process" for plan in plans)
    render.data(f"{len(plans)} servers: {here} in one process with the head server, {own} in processes of their own")


def _inline_failures(config: DictConfig, plans: Sequence[ServerPlan]) -> list[str]:
    failures = []
    for plan in plans:
        if plan.placement == "inline":
            try:
                build(inline_spec(config, plan))
            except GymError as error:
                failures.append(str(error))
    return failures


async def _process_failures(config: DictConfig, plans: Sequence[ServerPlan]) -> list[str]:
    """Return what servers say that have a process of their own; those without an environment cannot be asked."""
    ready = [plan for plan in plans if plan.placement == "process" and plan.venv is not None and plan.venv.built]
    with share_config(config) as environment:
        specs = [child_spec(plan, environment) for plan in ready]
        outcomes = await asyncio.gather(*(_check(spec, startup_timeout_s(config)) for spec in specs))
    return [outcome for outcome in outcomes if outcome is not None]


async def _check(spec: ChildSpec, timeout_s: float) -> str | None:
    """What goes wrong with a server, which sees `dry_run` in its config and ends once it is built."""
    try:
        child = await ServerProcess.start(spec, bind(spec.host, spec.port, spec.name), lambda line: None)
    except GymError as error:
        return str(error)
    ends = {asyncio.create_task(child.died()), asyncio.create_task(child.ready())}
    try:
        done, _ = await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return str(ServerLate(timeout_s, {spec.name: child.last_lines}))
        return str(await child.died()) if child.process.returncode else None
    finally:
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        await child.stop()
