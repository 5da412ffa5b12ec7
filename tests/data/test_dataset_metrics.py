# SPDX-License-Identifier: Apache-2.0
"""The numbers that describe a dataset, against values worked out by hand."""

import json
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.dataset_metrics import measure, metrics_file, rounded

NOTHING = {
    "Total # non-null values": 0,
    "Average": 0.0,
    "Min": 0.0,
    "Max": 0.0,
    "Standard deviation": 0.0,
}


def row(params=None, **fields):
    return {"responses_create_params": params if params is not None else {"input": "hi"}, **fields}


def numbers_of(total, average, low, high, deviation):
    return {
        "Total # non-null values": total,
        "Average": average,
        "Min": low,
        "Max": high,
        "Standard deviation": deviation,
    }


def test_the_keys_come_in_the_order_of_a_metrics_file():
    assert list(measure([row(id=1, label="x")])) == [
        "Number of examples",
        "Number of tools",
        "Json-dumped number of words (proxy for token count)",
        "Number of turns",
        "Temperature",
        "id",
        "label",
    ]


def test_a_dataset_without_rows_is_all_zeros():
    metrics = measure([])
    assert metrics.pop("Number of examples") == 0
    assert list(metrics.values()) == [NOTHING] * 4


def test_tools_are_counted_where_they_are_given():
    tool = {"type": "function"}
    rows = [row({"input": "a", "tools": tools}) for tools in ([tool], [tool] * 3, [], None)] + [row({"input": "a"})]
    # 1, 3 and 0 tools: mean 4/3, squared distances 1/9 + 25/9 + 16/9 = 42/9, over n - 1 = 2, root 1.5275.
    assert measure(rows)["Number of tools"] == numbers_of(3, 1.33, 0.0, 3.0, 1.53)


def test_turns_are_what_the_user_says():
    def said(*roles):
        return row({"input": [{"role": role, "content": "x"} for role in roles]})

    rows = [row({"input": "one"}), said("system", "user", "assistant", "user"), said("system"), row({"input": []})]
    assert measure(rows)["Number of turns"] == numbers_of(2, 1.5, 1.0, 2.0, 0.707)


def test_words_are_counted_in_the_json_text_of_the_create_params():
    # {"input": "two words", "temperature": 0.5} falls into five pieces.
    assert measure([row({"input": "two words", "temperature": 0.5})])[
        "Json-dumped number of words (proxy for token count)"
    ] == numbers_of(1, 5.0, 5.0, 5.0, 0.0)


def test_white_space_that_json_escapes_does_not_split_words():
    words = "Json-dumped number of words (proxy for token count)"
    assert measure([row({"input": "a\nb c"})])[words]["Max"] == 3.0


def test_a_temperature_that_is_null_is_not_a_value():
    rows = [row({"input": "a", "temperature": value}) for value in (None, 0.25, 1.0)]
    assert measure(rows)["Temperature"] == numbers_of(2, 0.625, 0.25, 1.0, 0.53)


def test_fields_hold_numbers_or_texts():
    rows = [row(id=1, kind="a"), row(id=2, kind="b"), row(id=4, kind="a")]
    metrics = measure(rows)
    # Mean 7/3, squared distances 16/9 + 1/9 + 25/9 = 42/9, over 2, root 1.5275.
    assert metrics["id"] == numbers_of(3, 2.33, 1.0, 4.0, 1.53)
    assert metrics["kind"] == {"unique_count": 2, "total_count": 3}


def test_lists_count_by_their_elements():
    metrics = measure([row(values=[1, 2], words=["a", "b"]), row(values=[6], words=["a"])])
    assert metrics["values"] == numbers_of(3, 3.0, 1.0, 6.0, 2.65)
    assert metrics["words"] == {"unique_count": 2, "total_count": 3}


def test_a_bool_counts_as_zero_or_one():
    assert measure([row(hit=True), row(hit=False)])["hit"] == numbers_of(2, 0.5, 0.0, 1.0, 0.707)


@pytest.mark.parametrize("value", [None, {"a": 1}, [], [None, {"a": 1}, [1]]])
def test_what_is_neither_number_nor_text_leaves_no_field(value):
    assert "extra" not in measure([row(extra=value)])


def test_responses_and_create_params_are_no_fields():
    assert len(measure([row(response="text")])) == 5


def test_a_field_with_numbers_in_one_row_and_text_in_another_counts_what_differs():
    assert measure([row(id=1), row(id="one"), row(id=1), row(id="1")])["id"] == {"unique_count": 3, "total_count": 4}


def test_repeats_count_as_rows():
    rows = [row(id=1), row(id=3)]
    assert measure(rows, repeats=3) == measure([one for one in rows for _ in range(3)])
    assert measure(rows, repeats=3)["id"] == numbers_of(6, 2.0, 1.0, 3.0, 1.1)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, 0.0), (1.005, 1.0), (1.239, 1.24), (0.9994, 0.999), (0.12349, 0.123), (-0.5555, -0.555), (-12.346, -12.35)],
)
def test_numbers_have_two_decimals_and_small_ones_three(number, expected):
    assert rounded(number) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_statistics_are_those_of_the_standard_library(values):
    metrics = measure([row(x=value) for value in values])["x"]
    assert metrics["Total # non-null values"] == len(values)
    assert metrics["Average"] == pytest.approx(statistics.fmean(values), abs=0.0051)
    assert metrics["Standard deviation"] == pytest.approx(statistics.stdev(values), abs=0.0051, rel=1e-6)
    assert metrics["Min"] <= metrics["Average"] + 0.01
    assert metrics["Average"] <= metrics["Max"] + 0.01


def test_a_metrics_file_begins_with_the_dataset_of_the_config():
    dataset = DatasetConfig(name="example", type="example", jsonl_fpath="data/example.jsonl")
    text = metrics_file(dataset, {"Number of examples": 5})
    assert text.startswith('{\n    "name": "example",\n')
    assert list(json.loads(text).items()) == [
        ("name", "example"),
        ("type", "example"),
        ("jsonl_fpath", "data/example.jsonl"),
        ("num_repeats", 1),
        ("source", None),
        ("gitlab_identifier", None),
        ("huggingface_identifier", None),
        ("license", None),
        ("Number of examples", 5),
    ]


def test_a_metrics_file_names_the_slice_that_was_measured():
    dataset = DatasetConfig(name="example", type="example", jsonl_fpath="x.jsonl", end_idx=3)
    written = json.loads(metrics_file(dataset, {}))
    assert written["end_idx"] == 3
    assert "start_idx" not in written
