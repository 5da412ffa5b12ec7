# SPDX-License-Identifier: Apache-2.0
"""The environment can be played at once, and its larger sets are made on demand, always the same."""

import json
from pathlib import Path

import pytest
import yaml

from environments.code_gen import prepare
from resources_servers.code_gen import generate_data

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
    datasets = config["code_gen_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"]
    for dataset in datasets:
        assert dataset["jsonl_fpath"] == f"environments/code_gen/data/{dataset['type']}.jsonl"
    assert {dataset["type"] for dataset in datasets} == set(prepare.SPLITS)


@pytest.mark.parametrize("split", ["validation", "train", "example"])
def test_a_split_is_written_and_always_the_same(data, split):
    path = prepare.prepare(split)
    first = path.read_bytes()
    assert path == data / f"{split}.jsonl"
    assert len(rows_of(path)) >= 5
    assert prepare.prepare(split).read_bytes() == first


def test_no_task_is_in_two_splits(data):
    ids = [row["hash_id"] for split in prepare.SPLITS for row in rows_of(prepare.prepare(split))]
    assert len(ids) == len(set(ids)) == len(generate_data.all_rows())


def test_a_split_that_is_not_there_is_named(data):
    with pytest.raises(ValueError, match="no split 'test', but"):
        prepare.prepare("test")
