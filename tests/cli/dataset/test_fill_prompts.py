# SPDX-License-Identifier: Apache-2.0
"""`gym dataset render` as a user runs it."""

import json

import pytest

from nemo_gym.cli.main import run_command


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gym"])
    (tmp_path / "p.yaml").write_text("system: Be brief.\nuser: '{question}'\n")
    (tmp_path / "raw.jsonl").write_text('{"question": "a"}\n{"question": "b"}\n')
    return tmp_path


def render(*arguments):
    return run_command(
        ["dataset", "render", "-i", "raw.jsonl", "--prompt-config", "p.yaml", "-o", "out.jsonl", *arguments]
    )


def test_rows_get_their_prompt(work, capsys):
    assert render() == 0
    assert capsys.readouterr().out == "Materialized 2 rows to out.jsonl\n"
    first = json.loads((work / "out.jsonl").read_text().splitlines()[0])
    assert first["responses_create_params"]["input"][1] == {"role": "user", "content": "a"}
    assert first["prompt_config_used"] == "p.yaml"


def test_rows_that_do_not_fit_are_named_and_nothing_is_written(work, capsys):
    (work / "raw.jsonl").write_text('{"question": "a"}\n{"query": "b"}\n{"query": "c"}\n')
    assert render() == 1
    said = capsys.readouterr().err
    assert "raw.jsonl: rows 2–3: the user prompt asks for 'question'" in said
    assert not (work / "out.jsonl").exists()


def test_files_that_are_not_there_are_named(work, capsys):
    (work / "raw.jsonl").unlink()
    assert render() == 1
    assert "raw.jsonl" in capsys.readouterr().err
    assert run_command(["dataset", "render", "-i", "raw.jsonl", "--prompt-config", "no.yaml", "-o", "out.jsonl"]) == 1
    assert "prompt file 'no.yaml' was not found" in capsys.readouterr().err


def test_what_is_not_given_is_a_usage_error(work, capsys):
    assert run_command(["dataset", "render"]) == 2
    assert "input_jsonl_fpath, prompt_config, output_jsonl_fpath" in capsys.readouterr().err
