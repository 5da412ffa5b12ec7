# SPDX-License-Identifier: Apache-2.0
"""The rows that servers ship are those of their generators, and the recorded rollouts are of these rows."""

import importlib
import json
from typing import get_type_hints

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._servers.launching.launch import server_folder
from nemo_gym._servers.processes.entrypoint import load_server_class
from nemo_gym.server_utils import SimpleServer

SERVERS = PARENT_DIR / "resources_servers"
NAMES = sorted(path.parent.name for path in SERVERS.glob("*/generate_data.py"))
RECORDED = sorted(path.parent.parent.name for path in SERVERS.glob("*/data/example_rollouts.jsonl"))


@pytest.mark.parametrize("name", NAMES)
def test_the_data_are_those_of_the_generator(name, tmp_path):
    generator, shipped = importlib.import_module(f"resources_servers.{name}.generate_data"), SERVERS / name / "data"
    generator.write(tmp_path / "example.jsonl")
    assert len((tmp_path / "example.jsonl").read_text().splitlines()) == 5
    for written in tmp_path.iterdir():
        assert written.read_bytes() == (shipped / written.name).read_bytes()


def holds(whole, part):
    """Tell whether `whole` has all of `part`, besides what validation adds to an object: the defaults of its fields."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(holds, whole, part))
    return whole == part


def read_shipped(name):
    """Return the example rows of a server, each with its rollout."""
    files = [SERVERS / name / "data" / f"{file}.jsonl" for file in ("example", "example_rollouts")]
    rows, rollouts = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    return list(zip(rows, rollouts, strict=True))


@pytest.mark.parametrize("name", RECORDED)
def test_an_example_rollout_was_asked_what_its_row_asks(name):
    for row, rollout in read_shipped(name):
        question, asked = (one["responses_create_params"]["input"] for one in (row, rollout))
        assert holds(asked[: len(question)], question)  # an environment may add what it shows first


@pytest.mark.parametrize("name", RECORDED)
def test_an_example_rollout_has_the_fields_of_its_row_that_the_server_returns(name):
    server = load_server_class(server_folder("resources_servers", name), "app.py", SimpleServer)
    returned = get_type_hints(server.verify)["return"].model_fields
    for row, rollout in read_shipped(name):
        del row["responses_create_params"]
        expected = {key: value for key, value in row.items() if key in returned or key in rollout}
        assert holds(rollout, expected)
