# SPDX-License-Identifier: Apache-2.0
"""`gym env packages` lists what is installed where a server runs; `gym dev test` runs the tests of a clone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.cli import dev, legacy
from nemo_gym.cli.main import run_command


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_server(here: Path, requirements: str) -> Path:
    folder = here / "resources_servers" / "mine"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("")
    (folder / "requirements.txt").write_text(requirements)
    return folder


def test_a_server_without_needs_of_its_own_runs_with_the_packages_of_this_environment(here, capsys):
    assert run_command(["env", "packages", "--resources-server", "example_single_tool_call", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "nemo-gym" in {package["name"] for package in json.loads(out)}
    assert sys.executable in err


@pytest.mark.parametrize(("form", "line"), [("freeze", "pytest=="), ("columns", "pytest ")])
def test_the_format_can_be_chosen_as_in_the_older_command(here, capsys, monkeypatch, form, line):
    words = ["+entrypoint=resources_servers/example_single_tool_call", f"+format={form}"]
    monkeypatch.setattr(sys, "argv", ["ng_pip_list", *words])
    assert legacy.run_alias() == 0
    assert any(found.startswith(line) for found in capsys.readouterr().out.splitlines())


def test_an_environment_that_is_not_built_is_an_error_with_the_command_that_builds_it(here, capsys):
    write_server(here, "no-such-package==1.0\n")
    assert run_command(["env", "packages", "--resources-server", "mine", f"++cache_dir={here / 'cache'}"]) == 1
    assert "gym env prefetch" in capsys.readouterr().err


def test_an_environment_of_its_own_is_the_one_that_is_listed(here, capsys):
    folder = write_server(here, "no-such-package==1.0\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
    words = ["--resources-server", "mine", "++skip_venv_if_present=true", f"++cache_dir={here / 'cache'}"]
    assert run_command(["env", "packages", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "entrypoint"), (("--resources-server", "mien"), "mien"), (("+entrypoint=a/b", "+format=xml"), "format")],
)
def test_a_mistake_is_a_usage_error(here, capsys, words, said):
    assert run_command(["env", "packages", *words]) == 2
    assert said in capsys.readouterr().err


# --- dev --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clone(here, monkeypatch) -> Path:
    (here / "tests").mkdir()
    monkeypatch.setattr(dev, "PARENT_DIR", here)
    return here


@pytest.mark.thorough
@pytest.mark.parametrize(("test", "code"), [("assert True", 0), ("assert False", 1)])
def test_the_tests_of_a_clone_run_with_coverage_and_give_their_exit_code(clone, capfd, monkeypatch, test, code):
    (clone / "module.py").write_text("VALUE = 1\n")
    (clone / "tests" / "test_it.py").write_text(f"import module\n\n\ndef test_it():\n    {test}\n")
    monkeypatch.setenv("PYTHONPATH", str(clone))
    monkeypatch.setattr(sys, "argv", ["ng_dev_test"])
    assert legacy.run_alias() == code
    out = capfd.readouterr().out
    assert "module.py" in out, "the coverage report"
    assert "slowest" in out


def test_words_for_pytest_may_be_numbers():
    assert dev.DevTestConfig(pytest_args=["-n", 0]).pytest_args == ["-n", "0"]


def test_an_installed_package_has_no_tests_to_run(here, capsys, monkeypatch):
    monkeypatch.setattr(dev, "PARENT_DIR", here)
    assert run_command(["dev", "test"]) == 1
    assert "a clone of the project" in capsys.readouterr().err
