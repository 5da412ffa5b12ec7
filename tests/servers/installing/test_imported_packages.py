# SPDX-License-Identifier: Apache-2.0
"""What a server written for upstream imports without naming it."""

from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._servers.installing.imported_packages import add_upstream_packages, find_imported_packages
from nemo_gym._servers.installing.own_wheel import find_running_package
from nemo_gym._servers.installing.requirements import find_unmet, read_requirements
from nemo_gym._servers.installing.venvs import VenvSettings, plan_venv

STANDARD_LINE = "-e nemo-gym[dev] @ ../../\n"


def server(root: Path, app: str, requirements: str = STANDARD_LINE, **files: str) -> Path:
    """Write a server folder; `tests__x` is the file `tests/x.py`."""
    folder = root / "resources_servers/mine"
    files = {"app": f"{app}\nMine.run_webserver()", **files}
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "requirements.txt").write_text(requirements)
    return folder


def implied(folder: Path, *, tests: bool = False) -> list[str]:
    found = add_upstream_packages(read_requirements(folder), find_running_package(), tests=tests)
    return [line.requirement.name for line in found.implied if line.requirement]


def test_a_server_gets_what_it_imports_of_the_extra_and_nothing_else(tmp_path):
    assert implied(server(tmp_path, "import json, fastapi\nfrom pandas import DataFrame\nimport numpy.linalg")) == [
        "numpy",
        "pandas",
    ]


@pytest.mark.parametrize(
    ("app", "package"),
    [
        ("import tqdm", "tqdm"),
        ("import jsonschema", "jsonschema"),
        ("import pydot", "pydot"),
        ("from anthropic import AsyncAnthropic", "anthropic"),
        ("from devtools import pprint", "devtools"),
        ("from fontTools.ttLib import TTFont", "fonttools"),
        ("from git import Repo", "gitpython"),
        ("from mcp import ClientSession", "mcp"),
        ("import mlflow", "mlflow-skinny"),
        ("import pyarrow.parquet", "pyarrow"),
        ("import multipart", "python-multipart"),
        ("from fastapi import FastAPI, UploadFile", "python-multipart"),
        ("import urllib3", "urllib3"),
        ("import wandb", "wandb"),
        ("import yappi", "yappi"),
    ],
)
def test_the_extra_has_all_that_the_core_of_upstream_brings_along(tmp_path, app, package):
    assert implied(server(tmp_path, app)) == [package]


def test_a_nested_folder_belongs_to_the_root_above_its_kind(tmp_path):
    folder = tmp_path / "responses_api_agents/talks/simulation"
    folder.mkdir(parents=True)
    (tmp_path / "responses_api_agents/talks/shared.py").write_text("import tqdm")
    (folder / "app.py").write_text("from responses_api_agents.talks.shared import f\nMine.run_webserver()")
    (folder / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../../\n")
    assert implied(folder) == ["tqdm"]


def test_a_server_that_imports_none_of_them_gets_none(tmp_path):
    assert implied(server(tmp_path, "from nemo_gym.base_resources_server import SimpleResourcesServer")) == []


@pytest.mark.parametrize(
    "app",
    [
        "import helpers",
        "from helpers import f",
        "from . import helpers",
        "from .helpers import f",
        "from resources_servers.mine import helpers",
        "from resources_servers.mine.helpers import f",
        "def later():\n    import resources_servers.mine.helpers",
    ],
)
def test_what_a_neighbour_imports_counts_as_well(tmp_path, app):
    assert implied(server(tmp_path, app, helpers="import requests\nimport app")) == ["requests"]


def test_scripts_type_checking_and_tests_do_not_count_when_a_server_runs(tmp_path):
    folder = server(
        tmp_path,
        "import typing\nif typing.TYPE_CHECKING:\n    import ray",
        prepare_data="import datasets",
        tests__test_app="import pandas",
    )
    assert implied(folder) == []
    assert implied(folder, tests=True) == ["pandas"]


def test_what_another_server_imports_counts_where_it_is_imported(tmp_path):
    other = tmp_path / "resources_servers/other"
    other.mkdir(parents=True)
    (other / "app.py").write_text("import httpx")
    assert implied(server(tmp_path, "from resources_servers.other.app import Other")) == ["httpx"]


def test_a_line_of_its_own_is_the_only_one_that_counts(tmp_path):
    assert implied(server(tmp_path, "import numpy", f"{STANDARD_LINE}numpy==2.0.1\n")) == []


def test_without_the_line_about_nemo_gym_nothing_is_added(tmp_path):
    assert implied(server(tmp_path, "import numpy", "pydantic\n")) == []


def test_the_servers_of_this_project_name_all_they_need():
    folder = PARENT_DIR / "responses_api_models/azure_openai_model"
    assert "openai" in find_imported_packages([folder / "app.py"], [PARENT_DIR])
    assert implied(folder) == []


def test_code_that_cannot_be_parsed_is_left_to_the_import(tmp_path):
    assert implied(server(tmp_path, "def (")) == []


def test_a_server_is_inline_only_if_what_it_imports_is_installed(tmp_path):
    folder = server(tmp_path, "import ray")
    requirements = add_upstream_packages(read_requirements(folder), find_running_package())
    assert find_unmet(requirements, find=lambda name: None) == "ray>=2.46 is not installed"


def test_the_environment_depends_on_what_the_code_imports(tmp_path):
    settings = VenvSettings(cache_dir=tmp_path, python_version="3.99")
    keys = {
        plan_venv(server(tmp_path / str(number), app), settings).recipe.venv.name
        for number, app in enumerate(["import json", "import numpy", "import numpy, pandas"])
    }
    assert len(keys) == 3


def test_what_is_asked_for_all_servers_counts_for_one_that_would_be_inline(tmp_path):
    folder = server(tmp_path, "import json")
    settings = VenvSettings(cache_dir=tmp_path)
    assert plan_venv(folder, settings).recipe is None
    assert plan_venv(folder, replace(settings, extra_requirements=("packaging>=20",))).recipe is None
    assert plan_venv(folder, replace(settings, extra_requirements=("packaging==19.0",))).why.startswith("packaging ")
