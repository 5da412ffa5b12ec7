# SPDX-License-Identifier: Apache-2.0
"""`gym env prefetch` installs the programs of a config: here, packages that lie on this machine."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.cli.main import run_command
from tests.servers.wheelhouse import add_wheel

CONFIG = """
mine:
  responses_api_agents:
    program_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: example_single_tool_call}}
      model_server: {{type: responses_api_models, name: policy_model}}
      command: [hello]
      install: {install}
"""


def write_npm_package(folder: Path) -> Path:
    """Write a package with the program `hello`."""
    folder.mkdir()
    manifest = {"name": "hello-program", "version": "1.0.0", "bin": {"hello": "hello.js"}}
    (folder / "package.json").write_text(json.dumps(manifest))
    (folder / "hello.js").write_text("#!/usr/bin/env node\nconsole.log('hello')\n")
    (folder / "hello.js").chmod(0o755)
    return folder


def prefetch(here: Path, install: dict, *more: str) -> int:
    config = here / "config.yaml"
    config.write_text(CONFIG.format(install=json.dumps(install)))
    given = ["--config", str(config), "--resources-server", "example_single_tool_call"]
    return run_command(["env", "prefetch", *given, f"++cache_dir={here / 'cache'}", *more])


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def find_programs(here: Path, name: str) -> list[Path]:
    return sorted((here / "cache" / "programs").glob(f"*/{name}"))


@pytest.mark.thorough
def test_packages_of_npm_are_installed_once_and_tell_what_they_do(here, capsys):
    package = write_npm_package(here / "package")
    assert prefetch(here, {"npm": [str(package)]}) == 0
    out, err = capsys.readouterr()
    assert f"(mine) installing {package}" in err
    assert f"installed for agents that are programs: {package}" in out
    (program,) = find_programs(here, "node_modules/.bin/hello")
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "hello\n"
    shutil.move(package, here / "elsewhere")
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "hello\n"
    shutil.move(here / "elsewhere", package)
    assert prefetch(here, {"npm": [str(package)]}, "--json") == 0
    out, err = capsys.readouterr()
    assert "installing" not in err
    assert {"name": "mine", "own_environment": False, "programs": [str(package)]} in json.loads(out)
    (package / "hello.js").write_text("#!/usr/bin/env node\nconsole.log('changed')\n")
    assert prefetch(here, {"npm": [str(package)]}) == 0
    assert len(find_programs(here, "node_modules/.bin/hello")) == 2


def test_packages_of_pypi_get_an_environment_of_their_own(here, capsys):
    wheel = add_wheel(here, "hello_program", "1.0")
    assert prefetch(here, {"pypi": [str(wheel)]}) == 0
    (python,) = find_programs(here, "venv/bin/python")
    subprocess.run([python, "-c", "import hello_program"], check=True)


def test_what_cannot_be_installed_is_an_error_that_leaves_nothing(here, capsys):
    assert prefetch(here, {"pypi": [str(here / "no-such.whl")]}) == 1
    assert "could not be installed" in capsys.readouterr().err
    assert [path for path in (here / "cache" / "programs").iterdir() if path.is_dir()] == []
