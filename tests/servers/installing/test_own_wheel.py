# SPDX-License-Identifier: Apache-2.0
"""The running package as a wheel: from a source tree, and from installed files."""

import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import nemo_gym
from nemo_gym._servers.installing.installers import find_uv
from nemo_gym._servers.installing.own_wheel import (
    find_running_package,
    package_of_distribution,
    package_of_tree,
    write_wheel,
)

PYPROJECT = """
[project]
name = "nemo-gym"
dependencies = ["six>=1", "uvloop; sys_platform != 'win32'"]
[project.optional-dependencies]
dev = ["pytest>=8; python_version >= '3' or sys_platform == 'win32'", "ray[default]"]
[project.scripts]
gym = "nemo_gym.cli.main:main"
"""


@pytest.fixture
def tree(tmp_path) -> Path:
    folder = tmp_path / "tree"
    (folder / "nemo_gym").mkdir(parents=True)
    (folder / "nemo_gym" / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def install(wheel: Path, target: Path) -> importlib.metadata.Distribution:
    command = [find_uv(), "pip", "install", "--offline", "--no-deps", "--python", sys.executable]
    cache = target.with_name("uv")
    subprocess.run([*command, "--cache-dir", cache, "--target", target, wheel], check=True, capture_output=True)
    return next(iter(importlib.metadata.distributions(path=[str(target)])))


def test_the_wheel_of_a_tree_points_at_the_tree(tmp_path, tree):
    installed = install(write_wheel(package_of_tree(tree, "1.2"), tmp_path), tmp_path / "target")
    assert (installed.metadata["Name"], installed.version) == ("nemo-gym", "1.2")
    assert [path.read_text() for path in (tmp_path / "target").glob("*.pth")] == [f"{tree}\n"]
    assert [(entry.name, entry.value) for entry in installed.entry_points] == [("gym", "nemo_gym.cli.main:main")]


def test_extras_keep_the_markers_of_their_packages(tmp_path, tree):
    installed = install(write_wheel(package_of_tree(tree, "1.2"), tmp_path), tmp_path / "target")
    requires = [Requirement(text) for text in installed.requires]

    def wanted(extra: str, platform: str = "linux") -> list[str]:
        facts = {"extra": extra, "sys_platform": platform}
        return [each.name for each in requires if each.marker is None or each.marker.evaluate(facts)]

    assert wanted("") == ["six", "uvloop"]
    assert wanted("", "win32") == ["six"]
    assert wanted("dev") == ["six", "uvloop", "pytest", "ray"]


def test_an_installed_package_is_made_again_from_its_files(tmp_path):
    original = importlib.metadata.distribution("iniconfig")
    installed = install(write_wheel(package_of_distribution(original), tmp_path), tmp_path / "target")
    assert installed.version == original.version
    code = "import iniconfig; print(iniconfig.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "target", capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path / "target"))


def test_the_files_of_a_wheel_are_recorded_once_each(tmp_path):
    path = write_wheel(package_of_distribution(importlib.metadata.distribution("iniconfig")), tmp_path)
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        record = next(name for name in names if name.endswith("/RECORD"))
        recorded = [line.split(",")[0] for line in wheel.read(record).decode().splitlines()]
    assert sorted(recorded) == sorted(names)
    assert len(set(names)) == len(names)


def test_two_builds_of_one_version_are_two_packages():
    one = package_of_distribution(importlib.metadata.distribution("iniconfig"))
    assert one.fingerprint == package_of_distribution(importlib.metadata.distribution("iniconfig")).fingerprint
    assert one.fingerprint != replace(one, record=one.record.replace("sha256=", "sha256=0", 1)).fingerprint


def test_the_running_package_is_this_one():
    package = find_running_package()
    assert (package.name, package.version) == ("nemo-gym", nemo_gym.__version__)
    project = tomllib.loads((package.tree / "pyproject.toml").read_text())["project"]
    assert [line in package.metadata for line in project["dependencies"]] == [True] * len(project["dependencies"])
