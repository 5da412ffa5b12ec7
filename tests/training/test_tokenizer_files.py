# SPDX-License-Identifier: Apache-2.0
"""A tokenizer that cannot be read is an error that says what to do; `test_libraries.py` reads a real one."""

import sys
from types import SimpleNamespace

import pytest

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._training.tokenizer_files import load_decode


def test_a_tokenizer_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"no tokenizer .*tokenizer\.json"):
        load_decode(tmp_path)


def test_without_the_library_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ResultsError, match="pip install tokenizers"):
        load_decode(tmp_path)


def test_special_tokens_are_part_of_the_text(tmp_path, monkeypatch):
    calls = []

    def decode(ids, skip_special_tokens):
        calls.append((ids, skip_special_tokens))
        return "text"

    library = SimpleNamespace(Tokenizer=SimpleNamespace(from_file=lambda path: SimpleNamespace(decode=decode)))
    monkeypatch.setitem(sys.modules, "tokenizers", library)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert load_decode(tmp_path)((1, 2)) == "text"
    assert calls == [([1, 2], False)]


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, monkeypatch):
    def refuse(path):
        raise Exception("missing field `model`")

    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=SimpleNamespace(from_file=refuse)))
    file = tmp_path / "other.json"
    file.write_text("{}")
    with pytest.raises(ResultsError, match="missing field"):
        load_decode(file)
