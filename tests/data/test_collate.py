# SPDX-License-Identifier: Apache-2.0
"""Datasets into training files: all of it or nothing, wherever the datasets lie."""

import gc
import gzip
import json
import os

import pytest

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._data.collate import MetricsConflict, collate, write_source_rows
from nemo_gym._data.dataset_rows import OffendingRows
from nemo_gym._data.lines import DataFileError
from nemo_gym._data.sources import Source

AGENT_REF = {"type": "responses_api_agents", "name": "agent"}


def asks(text, **fields):
    return {"responses_create_params": {"input": text}, **fields}


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def source(path, type="train", agent="agent", prompt=None, **changes):
    fields = {"name": path.stem, "type": type, "jsonl_fpath": str(path), "license": "MIT", **changes}
    return Source(agent, DatasetConfig(**fields), path, prompt)


def rows_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_every_file_is_written(tmp_path, out):
    train = source(write(tmp_path / "data" / "train.jsonl", asks("a", id=1), asks("b", id=2)))
    test = source(write(tmp_path / "data" / "val.jsonl", asks("c")), type="validation")
    collation = collate([train, test], out)
    assert files_below(tmp_path) == [
        *(f"data/train{end}" for end in (".jsonl", "_metrics.json", "_prepare.jsonl")),
        *(f"data/val{end}" for end in (".jsonl", "_metrics.json", "_prepare.jsonl")),
        *(f"out/train{end}" for end in (".jsonl", "_metrics.json")),
        *(f"out/validation{end}" for end in (".jsonl", "_metrics.json")),
    ]
    assert rows_in(out / "train.jsonl") == [
        {**asks("a", id=1), "agent_ref": AGENT_REF},
        {**asks("b", id=2), "agent_ref": AGENT_REF},
    ]
    assert [one.type for one in collation.types] == ["train", "validation"]
    assert json.loads((tmp_path / "data" / "train_metrics.json").read_text())["Number of examples"] == 2


def test_repeats_stand_side_by_side_and_datasets_in_config_order(tmp_path, out):
    first = source(write(tmp_path / "b.jsonl", asks("a"), asks("b")), num_repeats=2)
    second = source(write(tmp_path / "a.jsonl", asks("c")), agent="other")
    collation = collate([first, second], out)
    collated = rows_in(out / "train.jsonl")
    assert [row["responses_create_params"]["input"] for row in collated] == ["a", "a", "b", "b", "c"]
    assert [row["agent_ref"]["name"] for row in collated] == ["agent"] * 4 + ["other"]
    assert [len(rows_in(one.targets.prepared)) for one in collation.datasets] == [4, 1]
    assert collation.types[0].metrics["Number of examples"] == 5


def test_rows_stay_what_they_were(tmp_path, out):
    line = (
        '{"id": 123456789012345678901234567890,  "x": 1.10, "é": "\\u00e9", "responses_create_params": {"input":"a"} }'
    )
    write(tmp_path / "t.jsonl", line + "\n")
    collate([source(tmp_path / "t.jsonl")], out)
    assert (out / "train.jsonl").read_text().startswith(line.removesuffix("}"))
    assert rows_in(out / "train.jsonl")[0]["id"] == 123456789012345678901234567890


def test_the_agent_of_a_row_is_the_one_that_has_the_dataset(tmp_path, out):
    collate([source(write(tmp_path / "t.jsonl", asks("a", agent_ref={"name": "old"})))], out)
    assert rows_in(out / "train.jsonl")[0]["agent_ref"] == AGENT_REF


def test_a_dataset_may_be_a_part_of_a_file(tmp_path, out):
    path = write(tmp_path / "all.jsonl", *(asks(str(number)) for number in range(10)))
    sources = [source(path, end_idx=7), source(path, type="validation", start_idx=7, num_repeats=2)]
    collation = collate(sources, out)
    assert [row["responses_create_params"]["input"] for row in rows_in(out / "train.jsonl")] == list("0123456")
    assert [row["responses_create_params"]["input"] for row in rows_in(out / "validation.jsonl")] == list("778899")
    assert [one.metrics_path.name for one in collation.datasets] == ["all_0_7_metrics.json", "all_7_end_metrics.json"]


def test_two_agents_may_share_a_file(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a"))
    collation = collate([source(path, agent="one"), source(path, agent="two")], out)
    assert len({one.targets.prepared for one in collation.datasets}) == 2
    assert [row["agent_ref"]["name"] for row in rows_in(out / "train.jsonl")] == ["one", "two"]


def test_bad_rows_are_all_told_and_nothing_is_written(tmp_path, out):
    good = source(write(tmp_path / "good.jsonl", asks("a")))
    bad = source(
        write(
            tmp_path / "bad.jsonl", asks("a"), "{\n", {}, {"responses_create_params": {"input": 5}}, asks("b"), {}, {}
        )
    )
    worse = source(write(tmp_path / "worse.jsonl", "5\n"), type="validation")
    before = files_below(tmp_path)
    with pytest.raises(OffendingRows) as raised:
        collate([good, bad, worse], out)
    lines = str(raised.value).splitlines()
    assert lines[0] == "6 rows are not valid; nothing was written."
    assert lines[1].startswith(f"{bad.path}: row 2: not JSON (row 2: ")
    assert f"{bad.path}: rows 3, 6–7: missing (responses_create_params)" in lines
    assert f"{bad.path}: row 4: Input should be a valid list (responses_create_params.input)" in lines
    assert f"{worse.path}: row 1: a JSON object is expected, this is a number" in lines
    assert files_below(tmp_path) == before


def test_what_was_there_stays_when_a_row_is_bad(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a"))
    collate([source(path)], out)
    before = {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path) if name != "t.jsonl"}
    write(path, asks("b"), "{")
    with pytest.raises(OffendingRows):
        collate([source(path)], out)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_the_same_data_leaves_its_metrics_file_alone(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a"))
    collate([source(path)], out)
    metrics = tmp_path / "t_metrics.json"
    metrics.write_text(metrics.read_text().replace('"MIT"', '"TBD"'))
    before = metrics.read_text()
    collate([source(path)], out).raise_on_conflict()
    assert metrics.read_text() == before


def test_other_data_is_a_conflict_that_names_both_files_and_what_differs(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a", id=1))
    collate([source(path)], out)
    before = (tmp_path / "t_metrics.json").read_text()
    write(path, asks("a", id=2))
    collation = collate([source(path)], out)
    with pytest.raises(MetricsConflict) as raised:
        collation.raise_on_conflict()
    assert isinstance(raised.value, ValueError)
    assert str(tmp_path / "t_metrics.json") in str(raised.value)
    assert "t_metrics_conflict.json" in str(raised.value)
    assert "id / Average: was 1.0, is 2.0" in str(raised.value)
    assert (tmp_path / "t_metrics.json").read_text() == before
    assert json.loads((tmp_path / "t_metrics_conflict.json").read_text())["id"]["Average"] == 2.0
    assert rows_in(out / "train.jsonl")[0]["id"] == 2, "the rows are collated all the same"


def test_a_conflict_can_be_settled_either_way(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a", id=1))
    collate([source(path)], out)
    write(path, asks("a", id=2))
    collate([source(path)], out)
    collate([source(path)], out, overwrite_conflicts=True).raise_on_conflict()
    assert json.loads((tmp_path / "t_metrics.json").read_text())["id"]["Average"] == 2.0
    assert not (tmp_path / "t_metrics_conflict.json").exists()


def test_metrics_with_tokens_agree_with_a_run_that_cannot_count_them(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a b"))
    collate([source(path)], out, count_tokens=len)
    collate([source(path)], out).raise_on_conflict()
    assert not (tmp_path / "t_metrics_conflict.json").exists()


def test_a_field_may_hold_numbers_in_one_dataset_and_texts_in_another(tmp_path, out):
    one = source(write(tmp_path / "a.jsonl", asks("a", id=1), asks("b", id="x")))
    other = source(write(tmp_path / "b.jsonl", asks("a", id=[2, 3])))
    assert collate([one, other], out).types[0].metrics["id"] == {"unique_count": 4, "total_count": 4}


def test_compressed_files_and_editors_marks_are_no_obstacle(tmp_path, out):
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(asks("a")).encode() + b"\r\n"))
    collation = collate([source(tmp_path / "t.jsonl.gz")], out)
    assert rows_in(out / "train.jsonl") == [{**asks("a"), "agent_ref": AGENT_REF}]
    assert collation.datasets[0].targets.prepared == tmp_path / "t_prepare.jsonl"


def test_a_folder_that_cannot_be_written_to_is_left_alone(tmp_path, out, monkeypatch):
    path = write(tmp_path / "ro" / "t.jsonl", asks("a"))
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: str(place) != str(path.parent) and allowed(place, mode))
    collation = collate([source(path)], out)
    assert files_below(tmp_path / "ro") == ["t.jsonl"]
    assert collation.datasets[0].targets.prepared == out / "read_only_sources" / "agent" / "t_prepare.jsonl"
    assert files_below(out / "read_only_sources") == ["agent/t_metrics.json", "agent/t_prepare.jsonl"]


def test_metrics_in_a_folder_that_cannot_be_written_to_are_compared_all_the_same(tmp_path, out, monkeypatch):
    path = write(tmp_path / "ro" / "t.jsonl", asks("a", id=1))
    collate([source(path)], out)
    write(path, asks("a", id=2))
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    collation = collate([source(path)], out)
    with pytest.raises(MetricsConflict, match="id / Average"):
        collation.raise_on_conflict()
    assert (out / "read_only_sources" / "agent" / "t_metrics_conflict.json").is_file()


@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz"])
def test_the_output_never_takes_the_place_of_a_dataset(tmp_path, name):
    path = write(tmp_path / name, asks("a"))
    with pytest.raises(DataFileError, match="choose another output folder"):
        collate([source(path)], tmp_path)
    assert files_below(tmp_path) == [name]


def test_a_prompt_fills_rows_and_a_row_that_it_does_not_fit_is_bad(tmp_path, out):
    from nemo_gym.prompt import PromptConfig, apply_prompt_to_row

    path = write(tmp_path / "b.jsonl", {"question": "why?", "answer": 1}, {"query": "?"})
    dataset = BenchmarkDatasetConfig(name="b", type="benchmark", jsonl_fpath=path, prepare_script="p.py")
    prompt = PromptConfig(user="Q: {question}")
    benchmark = Source("agent", dataset, path, lambda row: apply_prompt_to_row(prompt, row))
    with pytest.raises(OffendingRows, match="row 2: the user prompt asks for 'question'"):
        collate([benchmark], out)
    write(path, {"question": "why?", "answer": 1})
    assert collate([benchmark], out).datasets[0].metrics["Number of examples"] == 1
    (row,) = rows_in(out / "benchmark.jsonl")
    assert row["responses_create_params"] == {"input": [{"role": "user", "content": "Q: why?"}]}


def test_a_row_of_ten_megabytes_is_measured_and_written(tmp_path, out):
    path = write(tmp_path / "t.jsonl", asks("a longword " * 1_000_000))
    metrics = collate([source(path)], out).types[0].metrics
    assert metrics["Json-dumped number of words (proxy for token count)"]["Max"] == 2_000_002.0
    assert (out / "train.jsonl").stat().st_size > 10_000_000


def test_an_input_for_an_evaluation_ends_at_its_limit_and_looks_no_further(tmp_path):
    first = source(write(tmp_path / "a.jsonl", asks("a"), asks("b"), "no row"), num_repeats=2)
    second = source(write(tmp_path / "b.jsonl", "no row"))
    assert write_source_rows([first, second], tmp_path / "in.jsonl", limit=3) == 3
    assert [row["responses_create_params"]["input"] for row in rows_in(tmp_path / "in.jsonl")] == ["a", "a", "b"]
    assert files_below(tmp_path) == ["a.jsonl", "b.jsonl", "in.jsonl"]


def test_an_input_for_an_evaluation_has_only_good_rows(tmp_path):
    path = write(tmp_path / "a.jsonl", asks("a"), {"no": "params"})
    with pytest.raises(OffendingRows, match="row 2: missing"):
        write_source_rows([source(path)], tmp_path / "in.jsonl")
    assert not (tmp_path / "in.jsonl").exists()
    assert write_source_rows([source(path)], tmp_path / "in.jsonl", check=False) == 2


@pytest.mark.parametrize("threshold", [700, 90_000, 0])
def test_cycles_are_searched_for_less_often_only_while_rows_are_read(threshold, tmp_path, out):
    before, seen = gc.get_threshold(), []

    def prompt(row):
        seen.append(gc.get_threshold())
        raise MetricsConflict("refused")

    gc.set_threshold(threshold, 11, 12)
    try:
        with pytest.raises(OffendingRows):
            collate([source(write(tmp_path / "train.jsonl", asks("a")), prompt=prompt)], out)
        assert gc.get_threshold() == (threshold, 11, 12)
    finally:
        gc.set_threshold(*before)
    assert seen == [({700: 50_000}.get(threshold, threshold), 11, 12)]
