# SPDX-License-Identifier: Apache-2.0
"""Prompt files and what they make of rows."""

import logging

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.errors import GymError
from nemo_gym.prompt import (
    PromptConfig,
    PromptError,
    apply_prompt_to_row,
    fill_prompt,
    load_prompt_config,
    validate_prompt_compatibility,
)

PROMPT = PromptConfig(user="Q: {question}", system="You know {topic}.")


@pytest.fixture(autouse=True)
def _fresh_cache():
    load_prompt_config.cache_clear()


def test_messages_are_filled_from_the_row():
    assert fill_prompt(PROMPT, {"question": "why?", "topic": "whales", "other": 1}) == [
        {"role": "system", "content": "You know whales."},
        {"role": "user", "content": "Q: why?"},
    ]


def test_without_a_system_template_there_is_no_system_message():
    assert fill_prompt(PromptConfig(user="hi"), {}) == [{"role": "user", "content": "hi"}]


def test_doubled_braces_are_literal():
    prompt = PromptConfig(user=r"Put {x} in \boxed{{}}, like {{1}}.")
    assert fill_prompt(prompt, {"x": "it"})[0]["content"] == r"Put it in \boxed{}, like {1}."


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_values_are_inserted_as_they_are(value):
    assert fill_prompt(PromptConfig(user="<{x}>"), {"x": value})[0]["content"] == f"<{value}>"


def test_nested_fields_can_be_reached():
    assert fill_prompt(PromptConfig(user="{meta[level]}"), {"meta": {"level": 3}})[0]["content"] == "3"


@pytest.mark.parametrize("template", ["{question}", "{row[question]}", "{row[a][b]}", "{row.nothing}"])
def test_a_missing_field_is_named_with_those_that_are_there(template):
    with pytest.raises(PromptError, match="available fields: row, topic") as raised:
        fill_prompt(PromptConfig(user=template), {"row": {"a": 1}, "topic": "x"})
    assert isinstance(raised.value, GymError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("template", [r"\boxed{", "}", "{}", "{0}"])
def test_braces_that_were_not_doubled_are_explained(template):
    with pytest.raises(PromptError, match="literal braces are doubled"):
        fill_prompt(PromptConfig(user=template), {"x": 1})


def test_a_row_gets_its_input_and_keeps_the_rest():
    row = {"question": "why?", "topic": "whales", "responses_create_params": {"temperature": 0.5}}
    filled = apply_prompt_to_row(PROMPT, row, prompt_config_path="prompts/p.yaml")
    assert filled == {
        "question": "why?",
        "topic": "whales",
        "responses_create_params": {"temperature": 0.5, "input": fill_prompt(PROMPT, row)},
        "prompt_config_used": "prompts/p.yaml",
    }
    assert "input" not in row["responses_create_params"]


def test_prompt_and_row_may_come_in_either_order():
    row = {"question": "why?", "topic": "whales"}
    assert apply_prompt_to_row(row, PROMPT) == apply_prompt_to_row(PROMPT, row)


def test_two_rows_without_a_prompt_are_a_programming_error():
    with pytest.raises(TypeError, match="expected a PromptConfig and a row, not dict and dict"):
        apply_prompt_to_row({}, {})


def test_a_row_that_has_an_input_is_refused():
    with pytest.raises(PromptError, match="already has an input"):
        apply_prompt_to_row(PROMPT, {"responses_create_params": {"input": "hello"}})


def test_all_rows_with_an_input_are_named_at_once():
    rows = [{"responses_create_params": {"input": text}} for text in ("a", "", "b")]
    with pytest.raises(PromptError, match=r"2 rows \(indices 0, 2\) already have an input"):
        validate_prompt_compatibility(rows)


def test_a_row_without_the_fields_of_the_prompt_is_named():
    with pytest.raises(PromptError, match="row 1: the user prompt asks for 'question'"):
        validate_prompt_compatibility([{"question": "a"}, {}], PromptConfig(user="{question}"))


def test_rows_that_fit_pass():
    validate_prompt_compatibility([{"question": "a", "topic": "b", "responses_create_params": {}}], PROMPT)


def test_a_file_is_found_in_the_search_roots_and_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("user: |-\n  {question}\n  costs ${price}\nsystem: Be brief.\n")
    prompt = load_prompt_config("p.yaml")
    assert prompt == PromptConfig(user="{question}\ncosts ${price}", system="Be brief.")
    assert load_prompt_config("p.yaml") is prompt


def test_a_missing_file_is_an_error_that_names_the_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        load_prompt_config("nowhere.yaml")


@pytest.mark.parametrize("content", ["user: [", "system: only", "user: 3", "just text", "", "user: \x80"])
def test_a_file_that_is_no_prompt_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "p.yaml").write_bytes(content.encode("latin-1"))
    with pytest.raises(PromptError, match=r"p\.yaml is not a prompt file"):
        load_prompt_config(tmp_path / "p.yaml")


def test_an_unknown_key_is_named_in_a_warning(tmp_path, caplog):
    (tmp_path / "p.yaml").write_text("user: hi\nsytem: typo\n")
    with caplog.at_level(logging.WARNING):
        load_prompt_config(str(tmp_path / "p.yaml"))
    assert "sytem" in caplog.text
