# SPDX-License-Identifier: Apache-2.0
"""`gym bench plan`: forecast a run's speed, its bottleneck and the resources it needs. See `nemo_gym._bench.plan`."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt

from nemo_gym._config.command_flags import Flag
from nemo_gym._config.overrides import parse_overrides
from nemo_gym.cli import render
from nemo_gym.cli.settings import validate_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig

if TYPE_CHECKING:
    from nemo_gym._bench.plan.forecast import Forecast
    from nemo_gym._bench.plan.scenario import Cluster, Constants, Workload


class BenchPlanConfig(BaseNeMoGymCLIConfig):
    """Forecast a run from measured constants: speed, bottleneck, cores, memory, and whether more nodes help."""

    latency: Annotated[str | None, Flag()] = Field(
        default=None, description="Time of a model call: `2s`, `lognormal:median=2s,sigma=0.5`, `fixed:300ms`."
    )
    tokens: Annotated[str | None, Flag()] = Field(
        default=None, description="Tokens generated per model call: a number or a distribution."
    )
    turns: Annotated[str | None, Flag()] = Field(
        default=None, description="Model calls per rollout: a number or a distribution."
    )
    from_rollouts: Annotated[str | None, Flag()] = Field(
        default=None, description="A rollouts file to take latency, tokens and turns from."
    )
    tool_cpu: Annotated[str, Flag()] = Field(default="0", description="CPU time per tool call, such as `5ms`.")
    verify_cpu: Annotated[str | None, Flag()] = Field(
        default=None, description="CPU time per verification, such as `20ms`, in a process next to the worker."
    )
    verify_like: Annotated[str | None, Flag()] = Field(
        default=None, description="An environment whose verifications `gym bench` has measured."
    )
    rollouts: Annotated[PositiveInt | None, Flag()] = Field(default=None, description="Number of rollouts in the run.")
    concurrency: Annotated[PositiveInt | None, Flag()] = Field(
        default=None, description="Rollouts in flight over all workers; by default as many as help."
    )
    nodes: Annotated[PositiveInt, Flag()] = Field(default=1, description="Number of machines, up to 1,000.")
    workers: Annotated[PositiveInt, Flag()] = Field(default=1, description="Worker processes per node.")
    cores: Annotated[PositiveFloat | None, Flag()] = Field(
        default=None, description="Cores per node; by default those of this machine."
    )
    memory: Annotated[PositiveFloat | None, Flag()] = Field(default=None, description="Memory per node in GB.")
    endpoint_in_flight: Annotated[PositiveInt | None, Flag()] = Field(
        default=None, description="Requests the endpoint handles at once."
    )
    endpoint_rps: Annotated[PositiveFloat | None, Flag()] = Field(
        default=None, description="Requests per second the endpoint handles."
    )
    endpoint_tps: Annotated[PositiveFloat | None, Flag()] = Field(
        default=None, description="Tokens per second the endpoint generates."
    )
    constants: Annotated[str | None, Flag()] = Field(
        default=None, description="JSON of `gym bench constants`; by default the packaged constants."
    )
    check: Annotated[bool, Flag()] = Field(
        default=False, description="Make three real runs and report how close the forecasts are."
    )
    json_format: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")


def plan(overrides: list[str]) -> int:
    """Forecast a run, or check forecasts against real runs."""
    config = validate_settings(BenchPlanConfig, parse_overrides(overrides).values)
    if config.check:
        return _check(config.json_format)
    from nemo_gym._bench.plan.forecast import as_object, enough_nodes, forecast, forecast_by_nodes
    from nemo_gym._bench.plan.measured import read_constants
    from nemo_gym._bench.plan.scenario import Cluster, Endpoint

    constants = read_constants(None if config.constants is None else Path(config.constants))
    workload = _read_workload(config)
    endpoint = Endpoint(config.endpoint_in_flight, config.endpoint_rps, config.endpoint_tps)
    cores = config.cores or len(os.sched_getaffinity(0))
    cluster = Cluster(config.nodes, cores, config.workers, config.memory)
    _require_cores(cluster)
    planned = forecast(workload, endpoint, cluster, constants, config.concurrency)
    curve = forecast_by_nodes(workload, endpoint, cluster, constants, config.concurrency)
    enough = enough_nodes(curve)
    if config.json_format:
        render.json_data(
            {
                "schema": 1,
                "plan": as_object(planned),
                "by_nodes": [as_object(one) for one in curve],
                "enough_nodes": enough.scenario.cluster.nodes,
                "constants": asdict(constants),
            }
        )
        return 0
    _show(planned, curve, enough, constants)
    return 0


def _read_workload(config: BenchPlanConfig) -> "Workload":
    from nemo_gym._bench import bench_file
    from nemo_gym._bench.plan.distributions import PlanError, parse_amount, parse_distribution
    from nemo_gym._bench.plan.measured import DEFAULT_FILE, verify_cpu_of
    from nemo_gym._bench.plan.observed import read_observed_run
    from nemo_gym._bench.plan.scenario import Workload

    given = {
        name: parse_distribution(f"--{name}", text)
        for name in ("latency", "tokens", "turns")
        if (text := getattr(config, name)) is not None
    }
    if config.from_rollouts is not None:
        observed = read_observed_run(Path(config.from_rollouts))
        seen = {"latency": observed.latency, "tokens": observed.tokens, "turns": observed.turns}
        given = {**{name: value for name, value in seen.items() if value is not None}, **given}
    if "latency" not in given:
        told = (
            f"{config.from_rollouts!r} has none: its run did not record model calls" if config.from_rollouts else "none"
        )
        raise PlanError(
            f"a plan needs to know how long a model call takes.\ngiven: {told}\n"
            "hint: `--latency lognormal:median=2s,sigma=0.5`, or `--from-rollouts` of a run with "
            "`++observability_enabled=true`"
        )
    if "tokens" not in given and config.endpoint_tps is not None:
        raise PlanError(
            "`--endpoint-tps` limits tokens per second, but nothing says how many tokens a call generates.\n"
            f"given: --endpoint-tps {config.endpoint_tps:g}\nhint: `--tokens 400`, or `--from-rollouts FILE`"
        )
    if given.get("turns") is not None and given["turns"].mean < 1:
        raise PlanError(f"--turns {config.turns}: a rollout has at least one model call.\nhint: `--turns 1`")
    verify_cpu_s = parse_amount("--verify-cpu", config.verify_cpu or "0")
    if config.verify_like is not None and config.verify_cpu is None:
        path = DEFAULT_FILE if config.constants is None else Path(config.constants)
        verify_cpu_s = verify_cpu_of(bench_file.read(path), config.verify_like)
    return Workload(
        **given,
        tool_cpu_s=parse_amount("--tool-cpu", config.tool_cpu),
        verify_cpu_s=verify_cpu_s,
        rollouts=config.rollouts,
    )


def _require_cores(cluster: "Cluster") -> None:
    from nemo_gym._bench.plan.distributions import PlanError

    if cluster.workers > cluster.cores:
        raise PlanError(
            f"--workers {cluster.workers} on a node of {cluster.cores:g} cores: a worker uses one core.\n"
            "known: more workers than cores only take turns\n"
            f"hint: `--workers {max(1, int(cluster.cores))}`, or `--cores {cluster.workers}` if the nodes have them"
        )


def _show(planned: "Forecast", curve: "list[Forecast]", enough: "Forecast", constants: "Constants") -> None:
    from nemo_gym._bench.report import write_number

    simulated = planned.simulated
    scenario = planned.scenario
    lines = [
        ("what", "value"),
        ("rollouts a second", write_number(simulated.rollouts_per_s)),
        ("binds", f"{planned.binding} (allows {write_number(planned.bounds[planned.binding])} a second)"),
        ("rollouts in flight", f"{scenario.in_flight:,}"),
        ("a rollout takes", f"{simulated.p50_s:.3g} s (p99 {simulated.p99_s:.3g} s)"),
        ("cores busy", f"{planned.cores_needed:,.3g} of {scenario.cluster.all_cores:,g}"),
        ("memory", f"{scenario.memory_gb:,.2f} GB on {scenario.cluster.nodes:,} node(s)"),
    ]
    if simulated.duration_s is not None:
        lines.append(
            ("the whole run", f"{write_number(simulated.duration_s)} s for {scenario.workload.rollouts:,} rollouts")
        )
    others = sorted((rate, name) for name, rate in planned.bounds.items() if name != planned.binding)
    lines += [(f"  {name} allows", f"{write_number(rate)} a second") for rate, name in others]
    render.table(lines)
    render.data("")
    headings = ("nodes", "rollouts/s", "in flight", "cores busy", "memory GB", "binds")
    steps = [
        (
            f"{one.scenario.cluster.nodes:,}",
            write_number(one.simulated.rollouts_per_s),
            f"{one.scenario.in_flight:,}",
            f"{one.cores_needed:,.3g}",
            f"{one.scenario.memory_gb:,.1f}",
            one.binding,
        )
        for one in curve
    ]
    render.table([headings, *steps])
    render.data(f"\nMore than {enough.scenario.cluster.nodes:,} node(s) do not help: {enough.binding} binds.")
    render.data(f"hint: {planned.hint}")
    render.note(f"constants measured on {constants.machine}; `gym bench constants` measures this machine")


def _check(as_json: bool) -> int:
    from nemo_gym._bench.plan.check import BUSY_SHARE, check, rows_of as rows_of_checks
    from nemo_gym._bench.report import as_object, as_table

    render.note("measuring the constants, then comparing three real runs with their forecasts; takes a minute or two")
    checked = check()
    rows = rows_of_checks(checked)
    if as_json:
        content: dict[str, Any] = {"schema": 1, "rows": [as_object(row) for row in rows]}
        render.json_data(content)
    else:
        render.data(as_table(rows))
    missed = [one.share for one in checked if not one.is_close]
    if missed and min(missed) < BUSY_SHARE:
        render.note(
            f"This machine was busy: a run got only {min(missed):.0%} of the CPU time it could use.\n"
            "hint: check again when nothing else runs here; these figures mean little"
        )
    return 1 if missed else 0
