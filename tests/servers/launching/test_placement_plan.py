# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

from nemo_gym._servers.installing.imported_packages import imports_package
from nemo_gym._servers.installing.venvs import VenvPlan
from nemo_gym._servers.launching.placement_plan import (
    ServerPlan,
    choose_placement,
    read_own_requirements,
    read_ray_placement,
)
from nemo_gym.errors import ConfigError

HERE = VenvPlan(Path("/server"), Path(sys.executable), "the running environment meets its requirements")
OWN = VenvPlan(Path("/server"), Path("/venv/bin/python"), "math-verify==0.7.0 is not installed")


@pytest.fixture
def entrypoint(tmp_path) -> Path:
    (tmp_path / "app.py").write_text("import os\nfrom json import dumps\n")
    return tmp_path / "app.py"


@pytest.mark.parametrize(
    ("block", "default", "venv", "placement", "why"),
    [
        ({}, None, HERE, "inline", "this environment has all it needs"),
        ({}, None, OWN, "process", "it has an environment of its own: math-verify==0.7.0 is not installed"),
        ({"num_workers": 3}, None, HERE, "process", "it has 3 workers"),
        ({"num_workers": 1}, None, HERE, "inline", "this environment has all it needs"),
        ({"placement": "process"}, None, HERE, "process", "the config asks for it"),
        ({}, "process", HERE, "process", "the config asks for it"),
        ({"placement": "inline"}, "process", HERE, "inline", "the config asks for it"),
        ({"placement": "ray"}, None, OWN, "ray", "the config asks for it"),
        ({"num_workers": 2}, "ray", HERE, "ray", "the config asks for it"),
    ],
)
def test_a_server_runs_in_this_process_unless_something_speaks_against_it(
    entrypoint, block, default, venv, placement, why
):
    assert choose_placement("tiny", block, default, entrypoint, venv) == (placement, why)


@pytest.mark.parametrize(
    "line", ["import utils", "from utils import x", "import utils.deep as u", "def f():\n    import utils"]
)
@pytest.mark.parametrize("neighbour", ["utils.py", "utils/__init__.py"])
def test_one_that_imports_a_neighbour_by_its_bare_name_gets_a_process(entrypoint, line, neighbour):
    (entrypoint.parent / neighbour).parent.mkdir(exist_ok=True)
    (entrypoint.parent / neighbour).touch()
    entrypoint.write_text(line)
    placement, why = choose_placement("tiny", {}, None, entrypoint, HERE)
    assert placement == "process"
    assert "'utils'" in why
    assert choose_placement("tiny", {"placement": "inline"}, None, entrypoint, HERE)[0] == "inline"


def test_code_that_is_no_python_is_no_reason_to_fail_here(entrypoint):
    entrypoint.write_text("this is no Python")
    assert choose_placement("tiny", {}, None, entrypoint, HERE)[0] == "inline"


@pytest.mark.parametrize(
    ("block", "venv", "message"),
    [
        ({"placement": "inline"}, OWN, "has an environment of its own"),
        ({"placement": "inline", "num_workers": 2}, HERE, "has 2 workers"),
        ({"placement": "proces"}, HERE, "'process'"),
    ],
)
def test_a_placement_that_is_not_possible_is_an_error_that_helps(entrypoint, block, venv, message):
    with pytest.raises(ConfigError, match="server 'tiny'") as caught:
        choose_placement("tiny", block, None, entrypoint, venv)
    assert message in str(caught.value)


def test_what_a_server_needs_on_the_nodes_of_a_cluster_is_read_from_its_block():
    asked = {"num_replicas": 2, "num_cpus": 0.5, "resources": {"fast_disk": 1}, "node_labels": {"zone": "a"}}
    found = read_ray_placement("tiny", {**asked, "entrypoint": "app.py"})
    assert (found.num_replicas, found.num_cpus, found.resources, found.node_labels) == tuple(asked.values())
    assert (found.num_gpus, found.max_restarts) == (0, 3)


def test_a_server_that_wishes_nothing_reserves_so_little_that_it_is_only_spread():
    assert 0 < read_ray_placement("tiny", {}).num_cpus <= 0.001


@pytest.mark.parametrize(
    ("block", "field"), [({"num_replicas": 0}, "num_replicas"), ({"resources": {"disk": "much"}}, "resources.disk")]
)
def test_a_wrong_wish_for_nodes_is_an_error_that_names_the_server_and_the_key(block, field):
    with pytest.raises(ConfigError, match="server 'tiny'") as caught:
        read_ray_placement("tiny", block)
    assert field in str(caught.value)
    assert "\nhint: " in str(caught.value)


def test_tools_over_mcp_and_several_replicas_do_not_go_together():
    with pytest.raises(ConfigError, match="hint: use `num_replicas: 1`"):
        read_ray_placement("tiny", {"num_replicas": 2, "expose_tools_over_mcp": True})
    assert read_ray_placement("tiny", {"expose_tools_over_mcp": True}).num_replicas == 1


def test_the_address_of_a_plan_is_a_url(entrypoint):
    plan = ServerPlan("a", "t", "i", Path(), "app.py", "127.0.0.1", 8000, "inline", "because")
    assert plan.url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("app.py", "import ray", True),
        ("tasks/heavy.py", "def f():\n    from ray.util import ActorPool", True),
        ("app.py", "import rayleigh  # ray", False),
        ("app.py", "from .ray import x", False),
        ("tests/test_app.py", "import ray", False),
        (".venv/lib/thing.py", "import ray", False),
        ("app.py", "import ray, but no Python", False),
    ],
)
def test_a_server_uses_a_package_if_its_code_imports_it(tmp_path, file, line, found):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(line)
    assert imports_package(tmp_path, "ray") is found


@pytest.mark.parametrize("asked", ["widget", {"widget": "1.0"}, [1]])
def test_packages_of_an_instance_are_a_list_of_texts(asked):
    with pytest.raises(ConfigError, match="'world' has `requirements:"):
        read_own_requirements("world", {"requirements": asked})
    assert read_own_requirements("world", {"requirements": ["widget==1.0"]}) == ("widget==1.0",)
    assert read_own_requirements("world", {}) == ()
