# SPDX-License-Identifier: Apache-2.0
"""`configs/resources_only.yaml`: what trainers start that play the rollouts themselves."""

import pytest
import yaml

from nemo_gym import PARENT_DIR

FILES = sorted(PARENT_DIR.glob("resources_servers/*/configs/resources_only.yaml"))


def test_the_servers_of_published_notebooks_have_one():
    names = {file.parents[1].name for file in FILES}
    assert {"reasoning_gym", "instruction_following", "workplace_assistant"} <= names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parents[1].name)
def test_it_is_the_resources_server_of_the_whole_config_alone(file):
    name = file.parents[1].name
    alone, whole = (yaml.safe_load(path.read_text()) for path in (file, file.with_name(f"{name}.yaml")))
    assert alone == {name: whole[name]}
    assert list(alone[name]) == ["resources_servers"]
