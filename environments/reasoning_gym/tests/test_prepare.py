# SPDX-License-Identifier: Apache-2.0
"""The environment can be played at once, and its larger sets are made on demand, always the same."""

import json
from pathlib import Path

import pytest
import yaml

from environments.reasoning_gym import prepare
from resources_servers.reasoning_gym import generate_data

HERE = Path(__file__).parents[1]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "DATA", tmp_path)
    return tmp_path


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_examples_are_there():
    assert rows_of(HERE / "data" / "example.jsonl") == generate_data.rows()


def test_the_config_names_the_files_that_prepare_writes():
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    datasets = config["reasoning_gym_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"]
    for dataset in datasets:
        assert dataset["jsonl_fpath"] == f"environments/reasoning_gym/data/{dataset['type']}.jsonl"
    assert {dataset["type"] for dataset in datasets} == set(prepare.SPLITS)


def test_a_split_is_written_and_always_the_same(data, monkeypatch):
    monkeypatch.setattr(prepare, "task_names", lambda: ["gcd", "chain_sum", "maze"])
    validation, train = prepare.prepare("validation"), prepare.prepare("train")
    first = validation.read_bytes()
    assert (len(rows_of(validation)), len(rows_of(train))) == (6, 30)
    assert prepare.prepare("validation").read_bytes() == first
    asked = [row["question"] for path in (validation, train) for row in rows_of(path)]
    assert len(set(asked)) > 30


def test_a_split_that_is_not_there_is_named(data):
    with pytest.raises(ValueError, match="no split 'test', but"):
        prepare.prepare("test")
