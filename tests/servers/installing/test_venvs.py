# SPDX-License-Identifier: Apache-2.0
"""Environments of servers, built by the real uv from wheels that lie in a folder."""

import asyncio
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym._servers.installing.installers import find_uv
from nemo_gym._servers.installing.own_wheel import OwnPackage
from nemo_gym._servers.installing.venv_store import find_running_venv, is_complete, link
from nemo_gym._servers.installing.venvs import (
    VenvBuildError,
    VenvPlan,
    VenvProgress,
    VenvSettings,
    build_all,
    plan_venv,
)
from nemo_gym.errors import ConfigError
from tests.servers.wheelhouse import add_wheel, metadata

STANDARD_LINE = "-e nemo-gym[dev] @ ../../\n"
NO_UV = Path("/nowhere/uv")


@pytest.fixture
def wheels(tmp_path, monkeypatch) -> Path:
    """The only packages there are: widget 1.0 and 2.0, and what uv seeds an environment with."""
    folder = tmp_path / "wheels"
    for seed in ("pip", "setuptools", "wheel"):
        add_wheel(folder, seed, "1.0")
    for version in ("1.0", "2.0"):
        add_wheel(folder, "widget", version)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def settings(tmp_path, wheels) -> VenvSettings:
    tree = tmp_path / "tree"
    (tree / "nemo_gym").mkdir(parents=True)
    (tree / "nemo_gym" / "__init__.py").write_text("")
    headers = metadata("nemo-gym", "0.1", ["gadget; extra == 'dev'"], ["dev"])
    own = OwnPackage("nemo-gym", "0.1", headers, tree=tree)
    return VenvSettings(tmp_path / "cache", uv_cache_dir=tmp_path / "uv", own=own, timeout_s=60)


def server(tmp_path: Path, name: str, *lines: str) -> Path:
    folder = tmp_path / "servers" / "resources_servers" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.txt").write_text(STANDARD_LINE + "\n".join(lines) + "\n")
    return folder


async def build(settings: VenvSettings, *folders: Path, extras: bool = False) -> tuple[list[VenvPlan], list[str]]:
    """Plan and build; the plans, and the stages that were reported."""
    plans = [plan_venv(folder, settings, extras=extras) for folder in folders]
    events: list[VenvProgress] = []
    await build_all(plans, settings, events.append)
    return plans, [event.stage for event in events if event.stage != "output"]


def run(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.strip()


def scripted_uv(tmp_path: Path, before_install: str = "") -> tuple[Path, Path]:
    """uv, with something that happens before it installs; and the file in which its calls are noted."""
    script, calls = tmp_path / "uv-script", tmp_path / "calls"
    script.write_text(
        f'#!/bin/sh\necho "$1" >> {shlex.quote(str(calls))}\n'
        f'if [ "$1" = pip ]; then {before_install or ":"}; fi\n'
        f'exec {shlex.quote(str(find_uv()))} "$@"\n'
    )
    script.chmod(0o755)
    return script, calls


def start_builder(settings: VenvSettings, folder: Path) -> subprocess.Popen[str]:
    """A process of its own that builds the environment of `folder` and prints the stages."""
    own = settings.own
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from nemo_gym._servers.installing.own_wheel import OwnPackage\n"
        "from nemo_gym._servers.installing.venvs import VenvSettings, build_all, plan_venv\n"
        f"own = OwnPackage({own.name!r}, {own.version!r}, {own.metadata!r}, tree=Path({str(own.tree)!r}))\n"
        f"settings = VenvSettings(Path({str(settings.cache_dir)!r}), Path({str(settings.uv_cache_dir)!r}),\n"
        f"                        uv=Path({str(settings.uv)!r}), own=own, timeout_s=60)\n"
        "def tell(event):\n"
        "    print(event.stage, flush=True)\n"
        f"asyncio.run(build_all([plan_venv(Path({str(folder)!r}), settings)], settings, tell))\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


async def until_exists(path: Path) -> None:
    async with asyncio.timeout(300):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.02)


async def test_a_server_whose_requirements_are_met_runs_in_the_running_environment(tmp_path, settings):
    (plan,), stages = await build(replace(settings, uv=NO_UV), server(tmp_path, "plain", "packaging>=20"))
    assert (plan.python, plan.built, plan.recipe) == (Path(sys.executable), True, None)
    assert stages == []


async def test_two_versions_of_one_package_live_side_by_side(tmp_path, settings):
    folders = [server(tmp_path, "one", "widget==1.0"), server(tmp_path, "two", "widget==2.0")]
    plans, stages = await build(settings, *folders)
    assert [run(plan.python, "import widget; print(widget.version)") for plan in plans] == ["1.0", "2.0"]
    assert sorted(stages) == ["building", "building", "ready", "ready"]
    assert [plan.why for plan in plans] == ["widget==1.0 is not installed", "widget==2.0 is not installed"]


async def test_what_is_built_is_used_again_without_running_uv(tmp_path, settings):
    folder = server(tmp_path, "one", "widget==1.0")
    await build(settings, folder)
    (plan,), stages = await build(replace(settings, uv=NO_UV), folder)
    assert plan.built
    assert stages == ["ready"]


async def test_equal_requirements_share_one_environment(tmp_path, settings):
    folders = [server(tmp_path, "one", "widget==1.0"), server(tmp_path, "two", "# the same", "Widget == 1.0")]
    plans, stages = await build(settings, *folders)
    assert plans[0].python == plans[1].python
    assert stages == ["building", "ready"]
    assert [(folder / ".venv").resolve() for folder in folders] == [plans[0].python.parents[1]] * 2


async def test_the_environment_holds_the_running_nemo_gym_and_the_extra_requirements(tmp_path, settings):
    folder = server(tmp_path, "one", "widget")
    (plan,), _ = await build(replace(settings, extra_requirements=("widget<2",)), folder)
    assert run(plan.python, "import nemo_gym; print(nemo_gym.__file__)").startswith(str(settings.own.tree))
    assert run(plan.python, "import importlib.metadata as m; print(m.version('nemo-gym'))") == "0.1"
    assert run(plan.python, "import widget; print(widget.version)") == "1.0"


async def test_a_server_that_names_a_package_itself_gets_its_version_and_not_the_running_one(
    tmp_path, settings, monkeypatch
):
    monkeypatch.setattr("nemo_gym._servers.installing.venvs.running_head_server_deps", lambda: ["widget==1.0"])
    running = replace(settings, extra_requirements=("widget==1.0",))
    (plan,), _ = await build(running, server(tmp_path, "one", "widget>=2"))
    assert run(plan.python, "import widget; print(widget.version)") == "2.0"


async def test_the_dev_extra_is_installed_only_for_tests(tmp_path, settings, wheels):
    add_wheel(wheels, "gadget", "1.0")
    folder = server(tmp_path, "one", "widget")
    (to_run,), _ = await build(settings, folder)
    (to_test,), _ = await build(settings, folder, extras=True)
    has_gadget = "import importlib.util as u; print(u.find_spec('gadget') is not None)"
    assert [run(plan.python, has_gadget) for plan in (to_run, to_test)] == ["False", "True"]


async def test_overrides_txt_has_the_last_word(tmp_path, settings):
    folder = server(tmp_path, "one", "widget==2.0")
    (folder / "overrides.txt").write_text("widget==1.0\n")
    (plan,), _ = await build(settings, folder)
    assert run(plan.python, "import widget; print(widget.version)") == "1.0"


async def test_a_pyproject_is_as_good_as_a_requirements_file(tmp_path, settings):
    folder = tmp_path / "resources_servers" / "one"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "one"\nversion = "1"\ndependencies = ["nemo-gym[dev]", "widget==1.0"]\n'
        '[tool.uv.sources]\nnemo-gym = { path = "../..", editable = true }\n'
    )
    (plan,), _ = await build(settings, folder)
    assert run(plan.python, "import nemo_gym, widget; print(widget.version)") == "1.0"


def test_the_key_follows_everything_that_is_installed(tmp_path, settings, wheels):
    folder = server(tmp_path, "one", "-r more.txt", f"./{os.path.relpath(wheels, tmp_path)}/local.whl")
    (folder / "more.txt").write_text("widget==1.0\n")
    seen = {plan_venv(folder, settings).python}

    def is_new(**changes) -> bool:
        python = plan_venv(folder, replace(settings, **changes)).python
        return len(seen) != len(seen | {python}) and not seen.add(python)

    (folder / "more.txt").write_text("widget==2.0\n")
    assert is_new()
    (folder / "overrides.txt").write_text("widget==1.0\n")
    assert is_new()
    (folder / "wheels").mkdir()
    (folder / "wheels" / "local.whl").write_bytes(b"other")
    assert is_new()
    assert is_new(extra_requirements=("openai==2.7",))
    assert is_new(python_version="3.99")
    assert is_new(own=replace(settings.own, version="0.2"))
    assert not is_new()


def test_another_python_is_a_reason_of_its_own(tmp_path, settings):
    folder = server(tmp_path, "one")
    assert plan_venv(folder, replace(settings, python_version="3.99")).why == (
        f"Python 3.99 is asked for, this is {platform.python_version()}"
    )
    short = ".".join(platform.python_version_tuple()[:2])
    assert plan_venv(folder, replace(settings, python_version=short)).recipe is None


async def test_the_link_follows_a_change_of_requirements(tmp_path, settings):
    folder = server(tmp_path, "one", "widget==1.0")
    await build(settings, folder)
    await build(settings, server(tmp_path, "one", "widget==2.0"))
    assert (folder / ".venv").is_symlink()
    assert run(folder / ".venv" / "bin" / "python", "import widget; print(widget.version)") == "2.0"


async def test_the_running_environment_is_linked_where_a_user_activates_it(tmp_path, settings):
    folder = server(tmp_path, "plain")
    await build(settings, folder)
    assert (folder / ".venv").resolve() == find_running_venv()
    assert (folder / ".venv" / "bin" / "pytest").exists()
    await build(settings, server(tmp_path, "plain", "widget==1.0"))
    assert run(folder / ".venv" / "bin" / "python", "import widget; print(widget.version)") == "1.0"


async def test_an_environment_without_pytest_is_not_linked(tmp_path, settings, monkeypatch):
    monkeypatch.setattr("nemo_gym._servers.installing.venvs.find_spec", lambda name: None)
    folder = server(tmp_path, "plain")
    await build(settings, folder)
    assert not (folder / ".venv").is_symlink()


async def test_an_installed_package_gets_no_link(tmp_path, settings, monkeypatch):
    folder = server(tmp_path, "one", "widget==1.0")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "servers"))
    (plan,), _ = await build(settings, folder)
    assert plan.python.exists()
    assert not (folder / ".venv").is_symlink()


async def test_running_a_server_leaves_the_environment_linked_that_its_tests_were_run_in(tmp_path, settings, wheels):
    add_wheel(wheels, "gadget", "1.0")
    folder = server(tmp_path, "one", "widget==1.0")
    (to_test,), _ = await build(settings, folder, extras=True)
    await build(settings, folder)
    assert (folder / ".venv").resolve() == to_test.python.parents[1]
    (to_run,), _ = await build(settings, server(tmp_path, "one", "widget==2.0"))
    assert (folder / ".venv").resolve() == to_run.python.parents[1]


@pytest.mark.parametrize("lines", [("widget==1.0",), ()])
async def test_somebody_elses_venv_is_left_alone(tmp_path, settings, lines):
    folder = server(tmp_path, "one", *lines)
    theirs = make_venv(folder / ".venv")
    (plan,), _ = await build(settings, folder)
    assert not plan.python.is_relative_to(theirs)
    assert theirs.is_dir()
    assert not theirs.is_symlink()


async def test_skip_if_present_uses_what_is_there(tmp_path, settings):
    folder = server(tmp_path, "one", "widget==1.0")
    theirs = make_venv(folder / ".venv")
    (plan,), stages = await build(replace(settings, skip_if_present=True, uv=NO_UV), folder)
    assert (plan.python, plan.built, stages) == (theirs / "bin" / "python", True, [])


async def test_skip_if_present_does_not_take_a_half_built_one(tmp_path, settings):
    folder = server(tmp_path, "one", "widget==1.0")
    (plan,), _ = await build(settings, folder)
    (plan.python.parents[1] / "complete.json").unlink()
    assert not plan_venv(folder, replace(settings, skip_if_present=True)).built


async def test_with_uv_venv_dir_everything_lies_there(tmp_path, settings):
    folder, elsewhere = server(tmp_path, "one", "widget==1.0"), tmp_path / "elsewhere"
    (plan,), _ = await build(replace(settings, uv_venv_dir=elsewhere), folder)
    place = elsewhere / "resources_servers" / "one" / ".venv"
    assert place.resolve() == plan.python.parents[1]
    assert plan.python.is_relative_to(elsewhere)
    assert not (folder / ".venv").exists()
    assert not settings.cache_dir.exists()


def test_a_link_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    link(tmp_path / "file" / ".venv", tmp_path / "venv")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


async def test_all_failures_are_told_together_and_the_rest_is_built(tmp_path, settings):
    names = {"good": "widget==1.0", "bad": "widget==3.0", "worse": "no-such-package"}
    folders = [server(tmp_path, name, line) for name, line in names.items()]
    with pytest.raises(VenvBuildError) as caught:
        await build(settings, *folders)
    message = str(caught.value)
    assert "widget==3.0" in message
    assert "no-such-package" in message
    assert [str(folder) in message for folder in folders] == [False, True, True]
    assert [plan_venv(folder, settings).built for folder in folders] == [True, False, False]


async def test_a_missing_uv_is_told_like_any_failure(tmp_path, settings):
    with pytest.raises(VenvBuildError, match="/nowhere/uv"):
        await build(replace(settings, uv=NO_UV), server(tmp_path, "one", "widget==1.0"))


async def test_a_uv_that_hangs_is_killed(tmp_path, settings):
    uv = tmp_path / "uv-that-hangs"
    uv.write_text("#!/bin/sh\nsleep 600\n")
    uv.chmod(0o755)
    with pytest.raises(VenvBuildError, match=r"`uv-that-hangs venv.*` was killed after 0.2 s"):
        await build(replace(settings, uv=uv, timeout_s=0.2), server(tmp_path, "one", "widget==1.0"))


async def test_cancelling_a_build_ends_uv_and_leaves_nothing(tmp_path, settings):
    reached = tmp_path / "reached"
    uv, _ = scripted_uv(tmp_path, before_install=f"echo $$ > {reached}.tmp; mv {reached}.tmp {reached}; sleep 600")
    folder = server(tmp_path, "one", "widget==1.0")
    task = asyncio.create_task(build(replace(settings, uv=uv), folder))
    await until_exists(reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(reached.read_text()), 0)
    assert not plan_venv(folder, settings).python.parents[1].exists()


async def test_two_processes_build_an_environment_once(tmp_path, settings):
    uv, calls = scripted_uv(tmp_path)
    folder = server(tmp_path, "one", "widget==1.0")
    builders = [start_builder(replace(settings, uv=uv), folder) for _ in range(2)]
    stages = sorted([(await asyncio.to_thread(builder.communicate, timeout=300))[0] for builder in builders])
    assert [builder.returncode for builder in builders] == [0, 0]
    assert calls.read_text().split() == ["venv", "pip"]
    assert sum("building" in said for said in stages) == 1
    assert all(said.endswith("ready\n") for said in stages)


async def test_a_build_cut_short_by_kill_9_is_done_again(tmp_path, settings):
    reached, gate = tmp_path / "reached", tmp_path / "gate"
    os.mkfifo(gate)
    uv, _ = scripted_uv(tmp_path, before_install=f"touch {reached}; cat {gate}")
    folder = server(tmp_path, "one", "widget==1.0")
    builder = start_builder(replace(settings, uv=uv), folder)
    await until_exists(reached)
    builder.send_signal(signal.SIGKILL)
    builder.communicate()

    plan = plan_venv(folder, settings)
    assert plan.python.exists()
    assert not plan.built
    events: asyncio.Queue[VenvProgress] = asyncio.Queue()
    again = asyncio.create_task(build_all([plan], settings, events.put_nowait))
    # The uv of the dead builder may still write: nobody may build beside it.
    assert (await events.get()).stage == "waiting"
    await asyncio.to_thread(gate.write_text, "")
    await again
    assert run(plan.python, "import widget; print(widget.version)") == "1.0"
    assert is_complete(plan.python.parents[1])


def make_venv(place: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
async def test_two_servers_with_two_versions_of_math_verify(tmp_path):
    settings = VenvSettings(tmp_path / "cache", uv_cache_dir=tmp_path / "uv")
    folders = [server(tmp_path, version, f"math-verify=={version}") for version in ("0.7.0", "0.8.0")]
    plans, stages = await build(settings, *folders)
    code = (
        "import importlib.metadata as m, json, math_verify, nemo_gym, hydra, omegaconf\n"
        "from math_verify import parse, verify\n"
        "right = verify(parse('$\\\\frac{1}{2}$'), parse('$0.5$'))\n"
        "print(json.dumps([m.version('math-verify'), right, nemo_gym.__file__]))"
    )
    import nemo_gym

    assert [json.loads(run(plan.python, code)) for plan in plans] == [
        ["0.7.0", True, nemo_gym.__file__],
        ["0.8.0", True, nemo_gym.__file__],
    ]
    assert sorted(stages) == ["building", "building", "ready", "ready"]
    assert (await build(replace(settings, uv=NO_UV), *folders))[1] == ["ready", "ready"]


async def test_instances_of_one_server_may_ask_for_packages_that_contradict_each_other(tmp_path, settings):
    folder = server(tmp_path, "counter")
    plans = [plan_venv(folder, settings, of_instance=[f"widget=={version}"]) for version in ("1.0", "2.0")]
    await build_all(plans, settings, lambda event: None)
    versions = [run(plan.python, "from importlib.metadata import version; print(version('widget'))") for plan in plans]
    assert versions == ["1.0", "2.0"]


async def test_a_package_of_an_instance_that_changes_on_disk_is_installed_anew(tmp_path, settings):
    folder = server(tmp_path, "counter")
    package = tmp_path / "gizmo"
    package.mkdir()
    (package / "setup.py").write_text("one")
    before = plan_venv(folder, settings, of_instance=[str(package)])
    (package / "setup.py").write_text("another")
    assert plan_venv(folder, settings, of_instance=[str(package)]).python != before.python


def test_an_option_is_no_package_of_an_instance(tmp_path, settings):
    with pytest.raises(ConfigError, match="'--pre' is no package"):
        plan_venv(server(tmp_path, "counter"), settings, of_instance=["--pre"])
