# SPDX-License-Identifier: Apache-2.0
"""Which files make up which split: the card of a dataset first, then names, by the conventions of the Hub."""

import pytest

from nemo_gym._data.hub import HubError
from nemo_gym._data.hub_splits import assign_splits, is_data_file


def card(text: str) -> str:
    return f"---\nlicense: mit\n{text}\n---\n# A dataset\n"


@pytest.mark.parametrize(
    ("paths", "splits"),
    [
        (["train.jsonl", "validation.jsonl"], {"train": ["train.jsonl"], "validation": ["validation.jsonl"]}),
        (["my_train_1.jsonl", "x-dev.csv"], {"train": ["my_train_1.jsonl"], "validation": ["x-dev.csv"]}),
        (["a/eval.json", "a/TRAINER.json"], {"test": ["a/eval.json"]}),
        (
            ["train/1.jsonl", "train/2.jsonl", "test-set/1.jsonl"],
            {"train": ["train/1.jsonl", "train/2.jsonl"], "test": ["test-set/1.jsonl"]},
        ),
        (["rows.jsonl", "more/rows.jsonl"], {"train": ["rows.jsonl", "more/rows.jsonl"]}),
        (["trainer.jsonl", "latest.jsonl"], {"train": ["trainer.jsonl", "latest.jsonl"]}),
        (["README.md", ".hidden/train.jsonl", "weights.bin"], {}),
    ],
    ids=["names", "words in names", "no part of a word", "folders", "no word", "no part of a word only", "no data"],
)
def test_without_a_card_names_decide(paths, splits):
    assert assign_splits("org/set", paths) == splits


def test_shards_come_in_order_and_may_have_any_split_name():
    paths = [
        "data/train_sft-00000-of-00001.parquet",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/test-00000-of-00001-ab12.parquet",
        "extra/train.jsonl",
    ]
    splits = assign_splits("org/set", paths)
    assert list(splits) == ["train", "test", "train_sft"]
    assert splits["train"] == paths[1:3]


@pytest.mark.parametrize(
    "data_files",
    [
        "[{split: train, path: part-*.jsonl}, {split: validation, path: [held/out.jsonl]}]",
        "{train: part-*.jsonl, validation: held/**}",
        "[{path: [part-1.jsonl, './part-2.jsonl']}, {split: validation, path: '**/out.jsonl'}]",
        "[{split: train, path: 'part-[0-9].jsonl'}, {split: validation, path: 'hel?/out.jsonl'}]",
    ],
)
def test_a_card_says_where_splits_are_in_any_of_its_forms(data_files):
    paths = ["held/out.jsonl", "part-1.jsonl", "part-2.jsonl", "part-x/3.jsonl", "train.jsonl"]
    assert assign_splits("org/set", paths, card(f"configs: [{{config_name: default, data_files: {data_files}}}]")) == {
        "train": ["part-1.jsonl", "part-2.jsonl"],
        "validation": ["held/out.jsonl"],
    }


def test_files_of_a_card_that_names_no_split_are_for_training():
    text = card("configs: [{config_name: x, data_files: '*.csv'}]")
    assert assign_splits("org/set", ["a.csv", "test.csv", "in/b.csv"], text) == {"train": ["a.csv", "test.csv"]}


def test_a_card_can_name_a_folder():
    text = card("configs: [{config_name: x, data_dir: two}]")
    assert assign_splits("org/set", ["one/train.jsonl", "two/test.jsonl"], text) == {"test": ["two/test.jsonl"]}


def test_of_several_configurations_the_default_is_meant():
    configs = "configs: [{config_name: a, data_files: a.jsonl}, {config_name: b, data_files: b.jsonl%s}]"
    assert assign_splits("org/set", ["a.jsonl", "b.jsonl"], card(configs % ", default: true")) == {"train": ["b.jsonl"]}
    with pytest.raises(HubError, match=r"several configurations and no default: 'a', 'b'\.\nhint: .*--artifact"):
        assign_splits("org/set", ["a.jsonl", "b.jsonl"], card(configs % ""))


def test_a_card_that_names_a_file_which_is_not_there_is_an_error():
    with pytest.raises(HubError, match=r"split 'train' is in 'gone\.jsonl'"):
        assign_splits("org/set", ["a.jsonl"], card("configs: [{data_files: gone.jsonl}]"))


def test_a_card_that_is_not_yaml_is_an_error():
    with pytest.raises(HubError, match=r"'org/set'.*not valid YAML"):
        assign_splits("org/set", ["a.jsonl"], card("configs: [{"))


@pytest.mark.parametrize(
    ("path", "is_data"),
    [
        *(("a.jsonl.gz", True), ("a.JSONL", True), ("a.jsonl.zst", True), ("x/a.parquet", True), ("a.csv", True)),
        *((".a/b.csv", False), ("__x__/b.csv", False), ("README.md", False), ("gz", False), ("a.csv.zst", False)),
        ("a.parquet.gz", False),
    ],
)
def test_what_is_a_data_file_shows_in_its_name(path, is_data):
    assert is_data_file(path) is is_data
