# SPDX-License-Identifier: Apache-2.0
"""`gym dataset collate` and `ng_prepare_data` as a user runs them, in a folder of the user's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.cli.main import run_command

CONFIG = """
game:
  resources_servers:
    game: {entrypoint: app.py, domain: games}
player:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: game}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: train, type: train, jsonl_fpath: data/train.jsonl, license: MIT, num_repeats: 2}
      - {name: example, type: example, jsonl_fpath: data/example.jsonl}
"""
LEGACY = Path(sys.executable).with_name("ng_prepare_data")


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gym"])
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "data").mkdir()
    for name in ("train", "example"):
        row = {"responses_create_params": {"input": f"{name} me"}, "answer": "x"}
        (tmp_path / "data" / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path


def collate(*arguments):
    return run_command(["dataset", "collate", "--config", "config.yaml", "--output-dir", "out", *arguments])


def test_every_step_is_told_in_order(work, capsys):
    assert collate("--mode", "train_preparation") == 0
    said = capsys.readouterr().out
    told = [
        "1. Datasets of the config",
        "with data: player",
        "2. Files",
        "FOUND    data/train.jsonl (train dataset 'train' of 'player')",
        "3. Rows",
        "Number of examples",
        "metrics: data/train_metrics.json",
        "4. Collated",
        "out/train.jsonl: 2 rows; metrics: out/train_metrics.json",
        "Finished!",
    ]
    places = [said.index(text) for text in told]
    assert places == sorted(places)


def test_json_is_all_that_is_on_stdout(work, capsys):
    assert collate("--mode", "example_validation", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["collated"][0]["path"] == "out/example.jsonl"
    assert found["datasets"][0]["metrics"]["answer"] == {"unique_count": 1, "total_count": 1}


def test_a_missing_dataset_is_listed_and_fails(work, capsys):
    (work / "data" / "train.jsonl").unlink()
    assert collate("--mode", "train_preparation") == 1
    captured = capsys.readouterr()
    assert "MISSING  data/train.jsonl" in captured.out
    assert "these datasets of the config are not there" in captured.err
    assert not (work / "out").exists()


def test_bad_rows_fail_and_are_all_told(work, capsys):
    (work / "data" / "train.jsonl").write_text('{"a": 1}\n{"a": 2}\noops\n')
    assert collate("--mode", "train_preparation") == 1
    said = capsys.readouterr().err
    assert "data/train.jsonl: rows 1–2: missing (responses_create_params)" in said
    assert "data/train.jsonl: row 3: not JSON" in said
    assert not list(work.glob("out/*"))


def test_a_conflict_fails_after_everything_was_written(work, capsys):
    assert collate("--mode", "train_preparation") == 0
    row = {"responses_create_params": {"input": "something else"}}
    (work / "data" / "train.jsonl").write_text(json.dumps(row) + "\n")
    assert collate("--mode", "train_preparation") == 1
    captured = capsys.readouterr()
    assert "answer: was" in captured.err
    assert "something else" in (work / "out" / "train.jsonl").read_text()
    assert collate("--mode", "train_preparation", "--overwrite-conflicts") == 0


def test_what_is_not_given_is_a_usage_error(work, capsys):
    assert run_command(["dataset", "collate", "--config", "config.yaml"]) == 2
    assert "missing required configuration: output_dirpath, mode" in capsys.readouterr().err


def test_help_shows_every_parameter(capsys):
    assert run_command(["dataset", "collate", "+help=true"]) == 0
    said = capsys.readouterr().out
    for name in ("output_dirpath", "mode", "should_download", "data_source", "overwrite_metrics_conflicts"):
        assert f"- {name} (" in said


def test_the_legacy_command_does_the_same(work):
    done = subprocess.run(
        [LEGACY, "+config_paths=[config.yaml]", "+output_dirpath=out", "+mode=example_validation"],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "use `gym dataset collate` instead" in done.stderr
    assert (work / "out" / "example.jsonl").is_file()
