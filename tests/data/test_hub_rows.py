# SPDX-License-Identifier: Apache-2.0
"""Data files of every kind as JSONL."""

import csv
import datetime
import decimal
import gzip
import io
import json
import sys

import orjson
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from nemo_gym._data.hub_rows import iter_json_lines, write_jsonl
from nemo_gym._data.lines import DataFileError
from nemo_gym._util.jsonl_files import JsonlError


def rows_of(tmp_path, name, content):
    path = tmp_path / "here"  # the name in the repository says what it is, not the name here
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [orjson.loads(line) for line in iter_json_lines(name, path)]


def test_lines_of_jsonl_are_kept_byte_by_byte(tmp_path):
    path = tmp_path / "x"
    path.write_bytes('\ufeff{"a":  1.0, "b": "é"}\r\n\n{"c": 1e3}'.encode())
    assert list(iter_json_lines("x.jsonl", path)) == ['{"a":  1.0, "b": "é"}'.encode(), b'{"c": 1e3}']


@pytest.mark.parametrize(
    ("name", "compress"), [("x.jsonl.gz", gzip.compress), ("x.jsonl.zst", zstandard.ZstdCompressor().compress)]
)
def test_compressed_rows_are_decompressed(tmp_path, name, compress):
    assert rows_of(tmp_path, name, compress(b'{"a": 1}\n')) == [{"a": 1}]


@pytest.mark.parametrize(
    "content",
    ['[{"a": 1}, {"a": 2}]', '\ufeff[\n  {"a": 1},\n  {"a": 2}\n]\n', '{"a": 1}\n{"a": 2}\n', b"\x1f\x8b"],
    ids=["a list", "a list over lines", "an object a line", "gzip"],
)
def test_a_json_file_is_a_list_or_an_object_a_line(tmp_path, content):
    content = gzip.compress(b'[{"a": 1}, {"a": 2}]') if isinstance(content, bytes) else content
    assert rows_of(tmp_path, "x.json", content) == [{"a": 1}, {"a": 2}]


def test_columns_of_csv_are_numbers_or_booleans_where_every_cell_is(tmp_path):
    table = 'id,score,ok,zip,text,none\n1,.5,True,01234,"a, ""b""\nc",\n-2,3,false,99999,5,\n'
    assert rows_of(tmp_path, "x.csv", table) == [
        {"id": 1, "score": 0.5, "ok": True, "zip": "01234", "text": 'a, "b"\nc', "none": None},
        {"id": -2, "score": 3.0, "ok": False, "zip": "99999", "text": "5", "none": None},
    ]


def test_numbers_that_a_float_cannot_hold_stay_text(tmp_path):
    assert rows_of(tmp_path, "x.csv", "n\n12345678901234567890\n1\n") == [{"n": "12345678901234567890"}, {"n": "1"}]


def test_tsv_has_tabs(tmp_path):
    assert rows_of(tmp_path, "x.tsv", "a\tb\n1,5\tx\n") == [{"a": "1,5", "b": "x"}]


@given(table=st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"))), max_size=5))
@settings(max_examples=60, deadline=None)
def test_text_survives_csv(tmp_path_factory, table):
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([("a", "b"), *((f"x{cell}", "-") for (cell,) in table)])
    rows = rows_of(tmp_path_factory.mktemp("csv"), "x.csv", buffer.getvalue())
    assert [row["a"] for row in rows] == [f"x{cell}" for (cell,) in table]


def test_rows_of_parquet_are_read_with_what_json_lacks_as_text(tmp_path):
    when = datetime.datetime(2026, 1, 2, 3, 4, 5)
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "hi"}]},
        "when": when,
        "price": decimal.Decimal("0.10"),
        "raw": b"\xff",
        "none": None,
        "tags": ["a", "b"],
    }
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row, row]), tmp_path / "x")
    texts = {"when": "2026-01-02T03:04:05", "price": "0.10", "raw": "/w=="}
    assert [json.loads(line) for line in iter_json_lines("data/x.parquet", tmp_path / "x")] == [{**row, **texts}] * 2


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataFileError, match=r"x\.parquet is a parquet file.*\nhint: pip install pyarrow"):
        rows_of(tmp_path, "x.parquet", b"PAR1")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl", '{"a": 1}\n[2]\n', r"x\.jsonl:2: a JSON object is expected"),
        ("x.jsonl", '{"a": 1}\n{"b"', r"x\.jsonl:2: not valid JSON"),
        ("x.json", "[1, 2]", r"x\.json: a list of objects is expected"),
        ("x.json", "[{]", r"x\.json: not valid JSON"),
        ("x.csv", "a,b\n1\n", r"x\.csv:2: 1 cells, but 2 columns"),
        ("x.csv", b"a\n\xff\n", r"x\.csv:.*not valid CSV"),
        ("x.parquet", b"no parquet", r"x\.parquet: not a valid parquet file"),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_is_written(tmp_path, name, content, said):
    path = tmp_path / "here"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((DataFileError, JsonlError), match=said):
        write_jsonl([(name, path)], tmp_path / "out.jsonl")
    assert [one.name for one in tmp_path.iterdir()] == ["here"]


def test_files_are_put_together_in_order(tmp_path):
    (tmp_path / "1").write_bytes(b'{"a": 1}')  # no line end
    (tmp_path / "2").write_bytes(b"a\n2\n")
    assert write_jsonl([("1.jsonl", tmp_path / "1"), ("2.csv", tmp_path / "2")], tmp_path / "out.jsonl") == 2
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"a": 1}\n{"a":2}\n'
