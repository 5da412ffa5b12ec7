# SPDX-License-Identifier: Apache-2.0
"""Rows of DAPO-Math-17k become rows of this environment."""

import json

import pytest

from nemo_gym.errors import GymError
from resources_servers.math_with_judge import dataset_preprocess


def hub_row(problem, answer):
    prompt = f"Solve this. The last line is Answer: $Answer.\n\n{problem}\n\nRemember the line with Answer."
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"index": "x"},
    }


def test_a_problem_is_taken_once_and_without_the_instructions_around_it(tmp_path, monkeypatch):
    rows = [
        hub_row("What is $1+1$?\n\nThink.", "2"),
        hub_row("What is $1+1$?\n\nThink.", "2"),
        hub_row("And $2+2$?", 4),
    ]
    monkeypatch.setattr(dataset_preprocess, "load_hub_rows", lambda repo_id, files: rows)
    written = dataset_preprocess.prepare(tmp_path / "data" / "rows.jsonl")
    first, second = map(json.loads, written.read_text().splitlines())
    assert (first["question"], first["expected_answer"]) == ("What is $1+1$?\n\nThink.", "2")
    assert (second["question"], second["expected_answer"]) == ("And $2+2$?", "4")
    assert first["responses_create_params"]["input"][0]["content"].startswith("What is $1+1$?")
    assert "boxed" in first["responses_create_params"]["input"][0]["content"]


def test_a_prompt_of_another_form_is_taken_as_it_is():
    (row,) = dataset_preprocess.questions([{**hub_row("", "3"), "prompt": [{"role": "user", "content": "What is 3?"}]}])
    assert row["question"] == "What is 3?"


def test_a_hub_that_cannot_be_reached_is_told_without_a_traceback(monkeypatch):
    def fail(repo_id, files):
        raise GymError("the connection failed.\nhint: check the network")

    monkeypatch.setattr(dataset_preprocess, "load_hub_rows", fail)
    with pytest.raises(SystemExit, match="Error: the connection failed"):
        dataset_preprocess.main()
