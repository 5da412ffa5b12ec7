# SPDX-License-Identifier: Apache-2.0
"""What a launch would do, without doing it: `+dry_run=true`."""

from omegaconf import DictConfig

from nemo_gym.cli import render
from nemo_gym.launch import inline_server, plan_launch


def show_plan(config: DictConfig) -> None:
    """Check everything that can be checked without serving, and print where each server would run."""
    plans = plan_launch(config)
    for plan in plans:
        if plan.placement == "inline":
            inline_server(config, plan)
    width = max(len(plan.name) for plan in plans)
    for plan in plans:
        build = "" if plan.venv is None or plan.venv.built else f"; its environment is not built yet: {plan.venv.why}"
        render.data(f"{plan.name:{width}}  {plan.placement:8}  {plan.url}  {plan.why}{build}")
    here = sum(plan.placement == "inline" for plan in plans)
    own = sum(plan.placement == "process" for plan in plans)
    render.data(f"{len(plans)} servers: {here} in one process with the head server, {own} in processes of their own")
