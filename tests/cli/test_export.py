# SPDX-License-Identifier: Apache-2.0
"""`gym export` and `gym eval tokens` as a user calls them."""

import json

import pytest

from tests.training.rollout_rows import make_failure, make_row, read_records, write_rows


@pytest.fixture
def rollouts(tmp_path):
    write_rows(tmp_path / "a_failures.jsonl", [make_failure(0, 2)])
    write_rows(tmp_path / "b.jsonl", [make_row(1, 0, 1.0), make_row(1, 1, 1.0, history=[1, 2, 99])])
    return write_rows(tmp_path / "a.jsonl", [make_row(0, 0, 1.0), make_row(0, 1, 0.0)])


def test_rollouts_are_exported_and_counted(gym, rollouts, tmp_path):
    said = gym("export", str(rollouts), "--to", "trl", "--output", str(tmp_path / "out.jsonl"))
    assert (said.code, said.err) == (0, "")
    assert "exported             2         2 clean" in said.out
    assert "failed               1         1 timeout" in said.out
    assert "trl: 2 records of 1 groups" in said.out
    assert len(read_records(tmp_path / "out.jsonl")) == 2


def test_several_files_and_wildcards_are_taken_and_the_summary_may_be_json(gym, rollouts, tmp_path):
    flags = ("--to", "verl", "-o", str(tmp_path / "out.jsonl"), "--keep-groups", "mixed", "--json")
    said = gym("export", str(tmp_path / "[a]*.jsonl"), str(tmp_path / "b.jsonl"), *flags)
    facts = json.loads(said.out)
    assert facts["rollouts"] == 5
    assert facts["filtered"] == {"all rewards of the group are the same": 2}
    assert facts["failed"] == {"timeout": 1}


def test_an_export_of_nothing_fails_and_says_why(gym, rollouts, tmp_path):
    said = gym("export", str(rollouts), "--to", "trl", "-o", str(tmp_path / "out.jsonl"), "--min-reward", "2")
    assert said.code == 1
    assert "2 reward too low" in said.out
    assert "nothing was exported" in said.err
    assert "hint:" in said.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--to", "nemo_rl", "-o", "x"), "nemo-rl"),
        (("--to", "trl"), "output"),
        (("--to", "trl", "-o", "x", "--keep-groups", "some"), "some"),
        (("--to", "trl", "-o", "x", "--min-pass-rate", "3"), "between 0 and 1"),
        (("--to", "trl", "-o", "x", "--tokenizer", "nowhere"), "no tokenizer"),
    ],
)
def test_mistakes_are_explained(gym, rollouts, words, text):
    said = gym("export", str(rollouts), *words)
    assert said.code != 0
    assert text in said.err


def test_the_drift_of_tokens_is_shown_by_model(gym, rollouts, tmp_path):
    said = gym("eval", "tokens", str(tmp_path / "[ab].jsonl"))
    assert said.code == 0
    assert said.out.splitlines()[2].split()[:5] == ["policy", "4", "3", "0", "1"]
    assert "first divergence: 1 in turn 1; of tokens that were 1 prompt" in said.out
    assert "hint: `--tokenizer`" in said.out


def test_the_drift_of_tokens_may_be_json(gym, rollouts):
    [model] = json.loads(gym("eval", "tokens", str(rollouts), "--json").out)["models"]
    assert (model["model"], model["clean"], model["trainable_share"]) == ("policy", 2, pytest.approx(10 / 18))
