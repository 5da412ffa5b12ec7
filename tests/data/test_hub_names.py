# SPDX-License-Identifier: Apache-2.0
"""What datasets and collections are called on the Hub."""

import pytest

from nemo_gym._data.hub import find_domain, make_collection_name, make_repository_name, name_server
from nemo_gym.errors import ConfigError


@pytest.mark.parametrize(
    ("prefix", "domain", "name", "repository"),
    [
        ("Nemotron-RL", "math", "OpenMathReasoning", "nvidia/Nemotron-RL-math-OpenMathReasoning"),
        ("Nemotron-RL", "", "mcqa", "nvidia/Nemotron-RL-mcqa"),
        ("", "math", "mcqa", "nvidia/math-mcqa"),
    ],
)
def test_what_is_empty_takes_its_dash_along(prefix, domain, name, repository):
    assert make_repository_name("nvidia", prefix, domain, name) == repository


def test_the_name_of_a_collection_is_its_title_and_slug():
    assert make_collection_name("nvidia", "NeMo Gym Sets", "68abc") == "nvidia/nemo-gym-sets-68abc"


@pytest.mark.parametrize(
    ("path", "server"),
    [
        ("resources_servers/multineedle/configs/other.yaml", "multineedle"),
        ("/somewhere/resources_servers/mcqa/configs/mcqa.yaml", "mcqa"),
        ("./resources_servers/mcqa/configs/mcqa.yaml", "mcqa"),
        ("mine/mcqa/config.yaml", "mcqa"),
        ("config.yaml", ""),
    ],
)
def test_the_server_is_the_folder_that_the_config_lies_in(path, server):
    assert name_server(path) == server


def test_the_domain_is_that_of_the_resources_server(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "agent: {responses_api_agents: {a: {domain: no}}}\n"
        "first: {resources_servers: {a: {entrypoint: app.py}}}\n"
        "second: {resources_servers: {b: {entrypoint: app.py, domain: Math}}}\n"
    )
    assert find_domain(path) == "math"
    path.write_text("model: ${other}\n")
    assert find_domain(path) == ""


def test_a_config_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "c.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"c\.yaml:1"):
        find_domain(tmp_path / "c.yaml")
