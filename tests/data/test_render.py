# SPDX-License-Identifier: Apache-2.0
"""Prompts into rows, file to file."""

import json

import pytest

from nemo_gym._data.dataset_rows import OffendingRows, render_rows
from nemo_gym._data.lines import DataFileError
from nemo_gym.prompt import PromptConfig, apply_prompt_to_row


def fill(row):
    return apply_prompt_to_row(PromptConfig(system="Be brief.", user="{question}"), row, "p.yaml")


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_get_their_input_and_keep_the_rest(tmp_path):
    raw = write(tmp_path / "raw.jsonl", {"question": "é?", "id": 1, "responses_create_params": {"temperature": 0.5}})
    assert render_rows(raw, tmp_path / "new" / "out.jsonl", fill) == 1
    assert json.loads((tmp_path / "new" / "out.jsonl").read_text()) == {
        "question": "é?",
        "id": 1,
        "responses_create_params": {
            "temperature": 0.5,
            "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "é?"}],
        },
        "prompt_config_used": "p.yaml",
    }


def test_all_rows_that_do_not_fit_are_told_and_nothing_is_written(tmp_path):
    has_input = {"question": "a", "responses_create_params": {"input": "x"}}
    raw = write(tmp_path / "raw.jsonl", has_input, {"question": "b"}, has_input, has_input, {"query": "c"})
    with pytest.raises(OffendingRows) as raised:
        render_rows(raw, tmp_path / "out.jsonl", fill)
    assert "rows 1, 3–4: the row already has an input under `responses_create_params`" in str(raised.value)
    assert "row 5: the user prompt asks for 'question', which the row does not have" in str(raised.value)
    assert "available fields: query" in str(raised.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_the_input_is_never_its_own_output(tmp_path):
    raw = write(tmp_path / "raw.jsonl", {"question": "a"})
    with pytest.raises(DataFileError, match="is the input itself"):
        render_rows(raw, tmp_path / "raw.jsonl", fill)
