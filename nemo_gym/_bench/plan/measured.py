# SPDX-License-Identifier: Apache-2.0
"""The constants of a plan, out of a file of `gym bench`: this machine's, or those that come with the package."""

from pathlib import Path

from nemo_gym._bench import bench_file, constants
from nemo_gym._bench.bench_file import Bench
from nemo_gym._bench.plan.distributions import PlanError
from nemo_gym._bench.plan.scenario import Constants

DEFAULT_FILE = Path(__file__).with_name("default_constants.json")


def read_constants(path: Path | None) -> Constants:
    """Read the constants of a bench file, by default of the one that comes with the package."""
    return constants_of(bench_file.read(path or DEFAULT_FILE), str(path or "the constants of the package"))


def constants_of(bench: Bench, source: str) -> Constants:
    """Return the constants that a bench run measured; PlanError if it did not measure them."""
    wanted = {
        constants.SINGLE_TURN: constants.CPU_UNIT,
        constants.TOOL_TURN: constants.CPU_UNIT,
        constants.COORDINATOR: constants.CPU_UNIT,
        constants.PROCESS: constants.MEMORY_UNIT,
        constants.IN_FLIGHT: constants.ROLLOUT_MEMORY_UNIT,
        constants.START: constants.START_UNIT,
    }
    rows = {name: bench.find(name, unit) for name, unit in wanted.items()}
    if missing := [name for name, row in rows.items() if row is None]:
        raise PlanError(
            f"{source} does not say what a plan needs: {'; '.join(missing)}.\n"
            f"measured there: {', '.join(bench.parts) or 'nothing'}\n"
            "hint: `gym bench constants --output constants.json` measures it on this machine"
        )
    value = {name: row.value for name, row in rows.items() if row is not None}
    machine = bench.machine
    return Constants(
        machine=f"{machine['cpu']}, {machine['cores']} cores, {bench.date[:10]}",
        single_turn_cpu_s=1e-6 * value[constants.SINGLE_TURN],
        tool_turn_cpu_s=1e-6 * value[constants.TOOL_TURN],
        coordinator_cpu_s=1e-6 * value[constants.COORDINATOR],
        process_memory_mb=value[constants.PROCESS],
        rollout_memory_mb=value[constants.IN_FLIGHT] / 1024,
        start_s=value[constants.START],
    )


def verify_cpu_of(bench: Bench, environment: str) -> float:
    """Return the CPU seconds that a verification of `environment` takes at most, by the rate that was measured."""
    row = bench.find(f"{environment}: verifications", "/s")
    if row is None:
        known = sorted(row.name.partition(":")[0] for row in bench.rows if row.name.endswith(": verifications"))
        raise PlanError(
            f"the constants do not say how fast {environment!r} verifies.\n"
            f"measured there: {', '.join(known) or 'no environment'}\n"
            "hint: `gym bench constants environments --output constants.json` measures all that are here, and "
            "`--verify-cpu` takes seconds"
        )
    cores: float = bench.machine["cores"]
    return cores / row.value
