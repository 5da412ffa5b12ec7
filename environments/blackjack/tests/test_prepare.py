# SPDX-License-Identifier: Apache-2.0
"""The environment can be played at once, and its larger sets are made on demand, always the same."""

import json
from pathlib import Path

import pytest
import yaml

from environments.blackjack import prepare
from resources_servers.blackjack import generate_data

HERE = Path(__file__).parents[1]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "DATA", tmp_path)
    return tmp_path


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_examples_are_there():
    assert rows_of(HERE / "data" / "example.jsonl") == generate_data.rows()


def test_the_config_names_the_files_that_prepare_writes(data):
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    datasets = config["blackjack_gymnasium_agent"]["responses_api_agents"]["gymnasium_agent"]["datasets"]
    for dataset in datasets:
        assert dataset["jsonl_fpath"] == f"environments/blackjack/data/{dataset['type']}.jsonl"
    assert {dataset["type"] for dataset in datasets} == {"train", "validation", "example"}


@pytest.mark.parametrize(("split", "size"), [("validation", 500), ("example", 5)])
def test_a_split_is_written_and_always_the_same(data, split, size):
    path = prepare.prepare(split)
    first = path.read_bytes()
    assert path == data / f"{split}.jsonl"
    assert len(rows_of(path)) == size
    assert prepare.prepare(split).read_bytes() == first


def test_no_row_is_in_two_splits(data):
    texts = [path.read_text().splitlines() for path in map(prepare.prepare, ("validation", "train", "example"))]
    assert len({line for lines in texts for line in lines}) == sum(map(len, texts))


def test_a_split_that_is_not_there_is_named(data):
    with pytest.raises(ValueError, match="no split 'test', but"):
        prepare.prepare("test")
