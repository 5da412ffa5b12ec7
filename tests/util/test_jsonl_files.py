# SPDX-License-Identifier: Apache-2.0
"""Reading and writing JSONL."""

import logging

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nemo_gym._util.jsonl_files import JsonlError, dumps_line, loads_line, read_lines, read_rows, write_rows
from nemo_gym.errors import GymError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_rows_are_numbered_from_one_and_blank_lines_skipped(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n  \n{"a": 2}')
    assert list(read_lines(path)) == [(1, 0, 9, {"a": 1}), (4, 13, 8, {"a": 2})]


@pytest.mark.parametrize(("line", "why"), [('{"a": ', "not valid JSON"), ("[1]", "is a list"), ("NaN", "not valid")])
def test_a_bad_line_is_named_by_file_and_line(tmp_path, line, why):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n{{"a": 2}}\n')
    with pytest.raises(JsonlError, match=rf"a\.jsonl:2: .*{why}") as raised:
        list(read_rows(path, torn_tail_ok=True))
    assert isinstance(raised.value, GymError)


def test_a_torn_last_line_is_skipped_with_a_warning_where_that_is_allowed(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": ')
    with caplog.at_level(logging.WARNING):
        assert list(read_rows(path, torn_tail_ok=True)) == [{"a": 1}]
    assert "a.jsonl:2" in caplog.text
    with pytest.raises(JsonlError):
        list(read_rows(path))


def test_a_long_line_is_shown_in_part():
    with pytest.raises(JsonlError) as raised:
        loads_line(b"x" * 10_000, "a.jsonl", 1)
    assert len(str(raised.value)) < 400


def test_numbers_that_json_cannot_hold_are_written_as_null():
    assert dumps_line({"a": float("nan"), 1: 2}) == b'{"a":null,"1":2}\n'


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.dictionaries(st.text(max_size=5), values, max_size=3), max_size=4))
def test_what_was_written_is_read(tmp_path, rows):
    rows = [row for row in rows if _encodable(row)]
    path = tmp_path / "a.jsonl"
    assert write_rows(path, rows) == len(rows)
    assert list(read_rows(path)) == [_finite(row) for row in rows]


def _encodable(row):
    try:
        str(row).encode()
        dumps_line(row)
    except (UnicodeEncodeError, TypeError):
        return False
    return True


def _finite(value):
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if value in (float("inf"), float("-inf")) else value
