# SPDX-License-Identifier: Apache-2.0
"""A clone can be set up with uv, from versions that are the same for everyone."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR

UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
LOCK = PARENT_DIR / "uv.lock"


def run(*words: str, cwd: Path = PARENT_DIR, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; what it printed."""
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_the_documented_extra_and_group_are_there():
    project = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())
    assert "dev" in project["project"]["optional-dependencies"]
    assert "docs" in project["dependency-groups"]


def test_the_lock_fits_the_project():
    run(UV, "lock", "--check", "--offline", "--default-index", "https://pypi.org/simple")


def test_the_lock_names_no_index_but_the_public_one():
    text = LOCK.read_text()
    assert set(re.findall(r'registry = "([^"]+)"', text)) == {"https://pypi.org/simple"}
    files = re.findall(r'url = "([^"]+)"', text)
    assert len(files) > 1000
    public = re.compile(r"https://files\.pythonhosted\.org/packages/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/[^/]+")
    assert [url for url in files if not public.fullmatch(url)] == []


def test_constraints_are_the_versions_of_the_lock():
    makefile = (PARENT_DIR / "Makefile").read_text()
    (options,) = re.findall(r"^EXPORT := (.*)$", makefile, re.M)
    assert run(UV, "export", "--offline", "-q", *options.split()) == (PARENT_DIR / "constraints.txt").read_text()


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(1800)
def test_a_fresh_clone_is_set_up_and_used_as_documented(tmp_path):
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", str(PARENT_DIR), str(clone))
    scripts = clone / ".venv" / "bin"
    # An interpreter that pyenv keeps is found on the path only once someone has chosen it.
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("3.12.*/bin"))
    path = os.pathsep.join(map(str, [scripts, Path(UV).parent, *pyenv, os.environ["PATH"]]))
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"} | {"PATH": path}

    def type_in(*words: str) -> str:
        return run(*words, cwd=clone, env=environment)

    type_in("uv", "venv", "--python", "3.12")
    type_in("uv", "sync", "--extra", "dev", "--group", "docs")
    assert "installed at .git/hooks/pre-commit" in type_in("pre-commit", "install")
    type_in("mkdocs", "build", "--strict")
    tested = type_in("ng_dev_test", "+pytest_args=[-k,the_readme_is_short]")
    assert "1 passed" in tested
    assert re.search(r"^TOTAL +\d+ +\d+ +\d+%", tested, re.M)
    assert "htmlcov/index.html" in type_in("coverage", "html")
    assert "passed" in type_in("ng_test", "+entrypoint=responses_api_agents/simple_agent")
    assert type_in("git", "status", "--porcelain") == ""
