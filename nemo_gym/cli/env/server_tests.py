# SPDX-License-Identifier: Apache-2.0
"""`gym env test`: run the tests of one server or of all, each with the interpreter of its server.

A single suite prints as it runs and returns pytest's exit code. Several suites run in parallel, and each is shown when
it is its turn.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from omegaconf import DictConfig
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._authoring.server_suites import (
    NOT_RUN,
    Suite,
    SuiteResult,
    Verdict,
    find_data_problems,
    run_suite,
    run_suites,
)
from nemo_gym._config.command_flags import Flag
from nemo_gym._servers.installing.venvs import (
    VenvBuildError,
    VenvPlan,
    VenvProgress,
    VenvSettings,
    build_all,
    plan_venv,
)
from nemo_gym._servers.launching.placement_plan import venv_settings
from nemo_gym.cli import render
from nemo_gym.cli.env.server_folders import ServerFolder, choose_server_folder, list_server_folders
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.errors import GymError

_TEST_TOOLS = ("pytest", "pytest_asyncio")
_SERVER_FILES = ("requirements.txt", "pyproject.toml", "app.py")
_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class TestAllConfig(BaseNeMoGymCLIConfig):
    """Run the test suites of all servers."""

    __test__ = False  # or pytest would collect it because of its name

    fail_on_total_and_test_mismatch: Annotated[bool, Flag("--fail-on-mismatch")] = Field(
        default=False, description="Fail if a server lacks tests."
    )
    num_shards: PositiveInt = Field(default=1, description="How many machines share the servers.")
    shard_index: int = Field(default=0, ge=0, description="Which share of the servers to test here, from 0.")
    test_concurrency: Annotated[PositiveInt | None, Flag("--concurrency")] = Field(
        default=None, description="Test suites to run at once; by default one per core."
    )
    test_timeout_seconds: PositiveFloat = Field(default=3600.0, description="Deadline per suite.")
    delete_venvs_after_each_test: bool = Field(default=False, description="Ignored: environments are shared and kept.")
    as_json: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the results as JSON.")

    @model_validator(mode="after")
    def check_shard(self) -> Self:
        if self.shard_index >= self.num_shards:
            raise ValueError(f"shard_index counts from 0, so with {self.num_shards} shards it is less than that")
        return self


class TestConfig(TestAllConfig):
    """Run the test suite of a server, or of all servers."""

    entrypoint: str | None = Field(
        default=None,
        description="The server: a relative path with two parts, such as `responses_api_agents/simple_agent`. "
        "Without it all servers are tested.",
    )
    component_name: str | None = Field(default=None, description="The server by its name alone.")
    all_servers: Annotated[bool, Flag("--all")] = Field(
        default=False, description="Test every server, as without a name; `--json` asks for it."
    )
    should_validate_data: Annotated[bool, Flag("--validate-data")] = Field(
        default=False, description="Check the example data too: examples, metrics and rollouts."
    )


@dataclass(frozen=True)
class Tested:
    """A server and the results of its tests and data checks."""

    server: ServerFolder
    result: SuiteResult
    data: list[str] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        return self.result.verdict == "passed" and not self.data

    def as_json(self) -> dict[str, Any]:
        return {
            "entrypoint": self.server.entrypoint,
            "verdict": self.result.verdict,
            "exit_code": self.result.code,
            "seconds": round(self.result.seconds, 2),
            "summary": self.result.summary,
            "data_problems": self.data,
        }


def test(overrides: list[str]) -> int:
    """Test one server, or all."""
    config = parse_config(overrides, TestConfig)
    settings = read_settings(TestConfig, config)
    if settings.entrypoint and settings.component_name:
        raise UsageError(
            f"which server? {settings.component_name!r} and {settings.entrypoint!r} are both named.\n"
            "hint: give the name alone, or `--resources-server` alone"
        )
    if asked := settings.entrypoint or settings.component_name:
        return asyncio.run(_test_one(config, settings, choose_server_folder(asked)))
    if settings.as_json and not settings.all_servers:
        raise UsageError(
            "--json prints the result of one server, and none is named.\n"
            "hint: name one, as in `gym env test mcqa --json`; for all servers, `gym env test --all --json`"
        )
    return asyncio.run(_test_all(config, settings))


# --- one --------------------------------------------------------------------------------------------------------------


async def _test_one(config: DictConfig, settings: TestConfig, server: ServerFolder) -> int:
    (suite,) = await _plan_suites(config, settings, [server])
    if isinstance(suite, SuiteResult):
        raise GymError(suite.output)
    tested = Tested(server, await run_suite(suite, capture=settings.as_json))
    if settings.should_validate_data:
        tested = replace(tested, data=_find_data_problems(server))
    if settings.as_json:
        render.json_data({**tested.as_json(), "output": tested.result.output})
    else:
        _show_data_problems([tested])
    if tested.result.code < 0:
        render.error(f"the tests of {server.entrypoint} were killed by signal {-tested.result.code}")
        return 1
    return tested.result.code or int(bool(tested.data))


# --- all --------------------------------------------------------------------------------------------------------------


async def _test_all(config: DictConfig, settings: TestConfig) -> int:
    folders = list_server_folders()
    testable = [server for server in folders if (server.folder / "README.md").is_file()]
    mine = testable[settings.shard_index :: settings.num_shards]
    if not mine:
        raise UsageError("there is no server to test here.\nhint: a server is tested if its folder has a README.md")
    suites = await _plan_suites(config, settings, mine)
    parallel = settings.test_concurrency or os.cpu_count() or 1
    render.note(f"testing {len(mine)} servers, {min(parallel, len(mine))} at a time")
    started = asyncio.get_running_loop().time()
    tested = list[Tested]()
    results = run_suites(suites, parallel)
    async for result in results:
        server = mine[len(tested)]
        tested.append(Tested(server, result, _find_data_problems(server)))
        if not settings.as_json:
            _show_one(tested[-1])
    total_s = asyncio.get_running_loop().time() - started
    mismatch = settings.fail_on_total_and_test_mismatch and len(testable) != len(folders)
    untested = [one for one in folders if mismatch and one not in testable]
    _show_all(settings, tested, total_s, untested)
    return int(mismatch or not all(one.is_fine for one in tested))


def _show_one(tested: Tested) -> None:
    """Show the output of a suite that did not pass, and one line for any other."""
    verdict = tested.result.verdict
    if verdict == "passed":
        render.data(f"✓ {tested.server.entrypoint}: {tested.result.summary}")
        return
    render.data(f"\n--- {tested.server.entrypoint} ---\n{tested.result.output.rstrip()}\n")
    code = "" if tested.result.code < 0 else f" (pytest's exit code {tested.result.code})"
    render.data(f"✗ {tested.server.entrypoint}: {verdict}{code}")


def _show_all(settings: TestConfig, tested: Sequence[Tested], total_s: float, untested: Sequence[ServerFolder]) -> None:
    if settings.as_json:
        groups = {verdict: [one for one in tested if one.result.verdict == verdict] for verdict in _VERDICTS}
        render.json_data(
            {
                "servers": [one.as_json() for one in tested],
                "counts": {verdict: len(group) for verdict, group in groups.items()},
                "without_readme": [server.entrypoint for server in untested],
                "seconds": round(total_s, 2),
            }
        )
        return
    _show_data_problems(tested)
    heads = ("", "server", "result", "data", "seconds")
    rows = [
        (
            "✓" if one.result.verdict == "passed" else "✗",
            one.server.entrypoint,
            one.result.summary.rpartition(" in ")[0] or one.result.verdict,
            _mark_data(one),
            f"{one.result.seconds:.1f}",
        )
        for one in tested
    ]
    render.data("")
    render.table([heads, *rows])
    for verdict in _VERDICTS:
        group = [one for one in tested if one.result.verdict == verdict]
        if group:
            render.data(f"{verdict}: {len(group)} / {len(tested)} ({len(group) / len(tested):.0%})")
    render.data(f"{sum(one.result.seconds for one in tested):.1f} s of tests in {total_s:.1f} s")
    for one in tested:
        if not one.is_fine:
            more = " +should_validate_data=true" if one.data else ""
            render.note(f"run it again: gym env test +entrypoint={one.server.entrypoint}{more}")
    if untested:
        listed = ", ".join(server.entrypoint for server in untested)
        render.error(f"{len(untested)} servers have no README.md and were not tested: {listed}")


def _mark_data(tested: Tested) -> str:
    if tested.data:
        return "✗"
    if tested.server.has_data:
        return "✓"
    return "–"


def _show_data_problems(tested: Sequence[Tested]) -> None:
    for one in tested:
        for problem in one.data:
            render.error(f"{one.server.entrypoint}: {problem}")


def _find_data_problems(server: ServerFolder) -> list[str]:
    return find_data_problems(server.folder) if server.has_data else []


# --- what a suite runs with -------------------------------------------------------------------------------------------


async def _plan_suites(
    config: DictConfig, settings: TestConfig, servers: Sequence[ServerFolder]
) -> list[Suite | SuiteResult]:
    """Plan the suites and build the interpreters they need; where that fails, return the failure."""
    venvs = venv_settings(config)
    plans = {server: _choose_interpreter(server.folder, venvs) for server in servers}
    ours = [plan for plan in plans.values() if isinstance(plan, VenvPlan)]
    failure = ""
    try:
        await build_all(ours, venvs, _tell)
    except VenvBuildError as error:
        failure = str(error)
    suites = list[Suite | SuiteResult]()
    for server, plan in plans.items():
        if isinstance(plan, str):
            suites.append(SuiteResult(server.entrypoint, NOT_RUN, 0.0, plan))
        elif not plan.python.exists():
            suites.append(SuiteResult(server.entrypoint, NOT_RUN, 0.0, failure))
        elif not _has_pytest(plan.python):
            lacks = f"the tests of {server.entrypoint} need pytest, which is not installed in its environment"
            install = "pip install 'nemo-gym[dev]'"
            if plan.recipe is not None:
                install = f"ask for it in {server.folder / 'requirements.txt'}, with the line `nemo-gym[dev]`"
            text = f"{lacks} ({plan.python}).\nhint: {install}"
            suites.append(SuiteResult(server.entrypoint, NOT_RUN, 0.0, text))
        else:
            suites.append(_plan_suite(server, plan, settings))
    if len(ours) == 1 and ours[0].recipe is not None and not failure:
        render.note(f"testing with {ours[0].python}: {ours[0].why}")
    return suites


def _choose_interpreter(folder: Path, settings: VenvSettings) -> VenvPlan | str:
    """Choose the server's own interpreter if it can run tests, else one that can; or return why not."""
    if not any((folder / name).is_file() for name in _SERVER_FILES):
        return VenvPlan(folder, Path(sys.executable), "it asks for nothing")
    try:
        served = plan_venv(folder, settings)
        if served.recipe is None and all(find_spec(tool) for tool in _TEST_TOOLS):
            return served
        return plan_venv(folder, settings, extras=True)
    except GymError as error:
        return str(error)


def _has_pytest(python: Path) -> bool:
    if python == Path(sys.executable):
        return find_spec("pytest") is not None
    return any(python.parents[1].glob("lib/python*/site-packages/pytest/__init__.py"))


def _tell(progress: VenvProgress) -> None:
    if progress.stage in ("building", "waiting", "failed"):
        servers = ", ".join(folder.name for folder in progress.servers)
        render.note(f"({servers}) {progress.stage}: {progress.text}")


def _plan_suite(server: ServerFolder, plan: VenvPlan, settings: TestConfig) -> Suite:
    roots = [str(root) for root in component_search_roots()]
    paths = [str(server.folder), str(server.root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        # The suite runs in its own folder, so our current folder has to be named.
        NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME: os.pathsep.join(roots),
    }
    arguments = ["--color=yes"] if sys.stdout.isatty() else []
    if not _has_pytest_config(server.folder):
        # Suites that were written inside the project rely on these.
        arguments += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    if folder := os.environ.get("GYM_CI_JUNIT_DIR"):
        report = Path(folder).absolute() / f"{server.entrypoint.replace('/', '__')}.xml"
        arguments.append(f"--junitxml={report}")
    return Suite(
        name=server.entrypoint,
        folder=server.folder,
        python=plan.python,
        environment=environment,
        arguments=arguments,
        timeout_s=settings.test_timeout_seconds,
    )


def _has_pytest_config(folder: Path) -> bool:
    for above in (folder, *folder.parents):
        for name in _PYTEST_FILES:
            file = above / name
            if file.is_file() and ("pytest" in file.read_text(encoding="utf-8", errors="replace") or "pytest" in name):
                return True
    return False
