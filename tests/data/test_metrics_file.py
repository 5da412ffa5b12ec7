# SPDX-License-Identifier: Apache-2.0
"""Metrics files: what stands in them, and when an older one no longer holds."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.dataset_metrics import (
    MetricsFileError,
    encode_collated_metrics,
    encode_metrics,
    find_differences,
    measure,
    read_metrics_file,
)


def dataset(**changes):
    return DatasetConfig(**{"name": "example", "type": "example", "jsonl_fpath": "data/example.jsonl", **changes})


def test_it_begins_with_the_dataset_of_the_config():
    text = encode_metrics(dataset(), {"Number of examples": 5})
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


def test_it_names_the_slice_that_was_measured():
    written = json.loads(encode_metrics(dataset(end_idx=3), {}))
    assert written["end_idx"] == 3
    assert "start_idx" not in written


def test_datasets_together_keep_what_they_share_and_are_listed():
    written = json.loads(encode_collated_metrics([dataset(), dataset(name="more")], {"Number of examples": 9}))
    assert (written["name"], written["type"], written["Number of examples"]) == (None, "example", 9)
    assert [one["name"] for one in written["datasets"]] == ["example", "more"]


def test_a_dataset_alone_is_described_as_ever():
    assert encode_collated_metrics([dataset()], {}) == encode_metrics(dataset(), {})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"Number of examples": 5}, {"Number of examples": 5, "more": 1}),
        ({"x": {"Average": 1.0}}, {"x": {"Average": 1.005, "Median": 2}}),
        ({"x": {"Average": 0.5}}, {"x": {"Average": 0.5005}}),
        ({"x": {"Average": 2}}, {"x": {"Average": 2.0}}),
        ({"x": [1, 2, 2]}, {"x": [2, 1, 2]}),
        ({"license": "MIT", "prompt_config": "moved.yaml"}, {}),
        ({"source": None}, {"source": {"unique_count": 1, "total_count": 2}}),
    ],
)
def test_metrics_that_differ_by_less_than_rounding_or_in_their_description_agree(before, now):
    assert find_differences(before, now) == []


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"Number of examples": 5}, {"Number of examples": 6}, "Number of examples: was 5, is 6"),
        ({"x": {"Average": 1.0}}, {"x": {"Average": 1.0051}}, "x / Average: was 1.0, is 1.0051"),
        ({"x": {"Average": 0.5}}, {"x": {"Average": 0.5006}}, "x / Average: was 0.5, is 0.5006"),
        ({"x": {"Median": 1.0}}, {"x": {}}, "x / Median: was 1.0, is missing now"),
        ({"x": {"unique_count": 1}}, {}, 'x: was {"unique_count": 1}, is missing now'),
        ({"x": [1, 2, 2]}, {"x": [1, 2]}, "x: was [1, 2, 2], is [1, 2]"),
        ({"x": "1"}, {"x": 1}, 'x: was "1", is 1'),
        (
            {"source": {"unique_count": 1, "total_count": 2}},
            {"source": {"unique_count": 2, "total_count": 2}},
            "source / unique_count: was 1, is 2",
        ),
    ],
)
def test_a_difference_names_the_metric_and_both_values(before, now, said):
    assert find_differences(before, now) == [said]


ROWS = st.lists(
    st.builds(
        lambda text, number, extra: {"responses_create_params": {"input": text}, "number": number, "extra": extra},
        st.text(max_size=5),
        st.floats(-1e6, 1e6) | st.integers(-5, 5),
        st.sampled_from(["a", 1, [1, "b"], None]),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_what_was_written_agrees_with_the_same_data(rows):
    written = json.loads(encode_metrics(dataset(), measure(rows)))
    assert find_differences(written, measure(rows)) == []


def test_no_file_is_no_metrics(tmp_path):
    assert read_metrics_file(tmp_path / "m.json") is None


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_file_that_is_no_metrics_file_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(MetricsFileError, match=r"m\.json"):
        read_metrics_file(tmp_path / "m.json")
