# SPDX-License-Identifier: Apache-2.0
"""The numbers that describe a dataset, against values worked out by hand."""

import json
import math
import statistics
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nemo_gym._data import create_params, dataset_metrics
from nemo_gym._data.dataset_metrics import MetricsAccumulator, combine_metrics, measure, round_number

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
        "Number of unique create params",
        "Number of unique user messages",
        "id",
        "label",
    ]


def test_a_dataset_without_rows_is_all_zeros():
    assert list(measure([]).values()) == [0, *[NOTHING] * 4, 0, 0]


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
    assert measure([row(response="text")]).keys() == measure([row()]).keys()


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
    assert round_number(number) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_statistics_are_those_of_the_standard_library(values):
    metrics = measure([row(x=value) for value in values])["x"]
    assert metrics["Total # non-null values"] == len(values)
    assert metrics["Average"] == pytest.approx(statistics.fmean(values), abs=0.0051)
    assert metrics["Standard deviation"] == pytest.approx(statistics.stdev(values), abs=0.0051, rel=1e-6)
    assert metrics["Min"] <= metrics["Average"] + 0.01
    assert metrics["Average"] <= metrics["Max"] + 0.01


def test_tokens_are_those_of_all_texts_that_a_model_reads():
    asks = {
        "instructions": "one two",
        "input": [
            {"role": "system", "content": "three"},
            {"role": "user", "content": [{"type": "input_text", "text": "four five"}, {"type": "input_image"}]},
            {"type": "function_call", "name": "six", "arguments": "seven", "call_id": "x"},
            {"type": "function_call_output", "call_id": "x", "output": "eight"},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "nine"}]},
        ],
        "tools": [{"name": "not read as text"}],
    }
    metrics = measure([row(asks), row({"input": "ten"})], count_tokens=lambda text: len(text.split()))
    assert metrics["Input length in OpenAI tokens (o200k_base)"] == numbers_of(2, 5.0, 1.0, 9.0, 5.66)


def test_long_talks_and_short_ones_are_measured_alike():
    talks = [["", "a b"], ["x y " * 20_000] * 9, [" z"], ["one  two\n three"] * 3]
    rows = [row({"input": [{"role": "user", "content": text} for text in texts]}) for texts in talks]
    metrics = measure(rows, count_tokens=lambda text: len(text.split()))
    tokens = [sum(len(text.split()) for text in texts) for texts in talks]
    words = [len(json.dumps(one["responses_create_params"]).split()) for one in rows]
    assert metrics["Input length in OpenAI tokens (o200k_base)"] == measure([row(x=n) for n in tokens])["x"]
    assert metrics["Json-dumped number of words (proxy for token count)"] == measure([row(x=n) for n in words])["x"]


@pytest.mark.parametrize("count_tokens", [None, len])
def test_user_messages_are_packed_while_rows_are_added(count_tokens, monkeypatch):
    monkeypatch.setattr(create_params, "_MANY", 100)
    metrics = MetricsAccumulator(count_tokens=count_tokens)
    for number in range(2_000):
        metrics.add(row({"input": f"question {number % 20}"}))
    assert len(metrics.conversations.user_messages._new) < 300
    assert metrics.summary()["Number of unique user messages"] == 20


def test_create_params_that_differ_only_in_the_order_of_keys_are_one():
    rows = [
        row({"input": "a", "temperature": 1.0}),
        row({"temperature": 1.0, "input": "a"}),
        row({"input": "a"}),
        row({"input": [{"role": "user", "content": "a"}]}),
        row({"input": [{"content": "a", "role": "user"}]}),
        row({"input": [{"role": "system", "content": "a"}]}),
    ]
    assert measure(rows, repeats=2)["Number of unique create params"] == 4


def test_user_messages_that_say_the_same_are_one():
    rows = [
        row({"input": "a"}),
        row({"input": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}),
        row({"input": [{"role": "user", "content": [{"type": "input_text", "text": "b"}]}]}),
        row({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "b"}]}]}),
        row({"input": [{"role": "assistant", "content": "c"}]}),
    ]
    assert measure(rows)["Number of unique user messages"] == 3


def test_other_sampling_parameters_are_measured_where_they_are_given():
    rows = [row({"input": "a", "top_p": 0.5, "max_output_tokens": number}) for number in (100, 300)]
    metrics = measure([*rows, row({"input": "a", "top_p": None})])
    assert metrics["Top p"] == numbers_of(2, 0.5, 0.5, 0.5, 0.0)
    assert metrics["Max output tokens"] == numbers_of(2, 200.0, 100.0, 300.0, 141.42)
    assert "Max tool calls" not in metrics


TEXTS = st.text(st.sampled_from('ab  \n\té"'), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-1e3, 1e3) | TEXTS
PARTS = st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXTS})
ITEMS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant"]), "content": TEXTS | st.lists(PARTS, max_size=2)},
    optional={"type": st.just("message")},
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "input": TEXTS | st.lists(ITEMS, max_size=3),
        "temperature": st.none() | st.floats(0, 2),
        "top_p": st.floats(0, 1),
        "tools": st.none() | st.lists(st.fixed_dictionaries({"name": TEXTS, "parameters": st.just({})}), max_size=2),
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=2),
    },
)
FIELDS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), SCALARS | st.lists(SCALARS, max_size=3) | st.just({"x": 1}), max_size=3
)
ROWS = st.lists(st.tuples(PARAMS, FIELDS).map(lambda both: row(both[0], **both[1])), max_size=6)


def plain_measure(rows):
    """The rules of a metrics file, told as plainly as they can be."""
    asked = [one["responses_create_params"] for one in rows]
    said = [params["input"] for params in asked if "input" in params]
    turns = [1 if isinstance(one, str) else sum(item["role"] == "user" for item in one) for one in said]
    messages = [one for one in said if isinstance(one, str)]
    messages += [item["content"] for one in said if isinstance(one, list) for item in one if item["role"] == "user"]
    metrics = {
        "Number of examples": len(rows),
        "Number of tools": plain_numbers([len(p["tools"]) for p in asked if p.get("tools") is not None]),
        "Json-dumped number of words (proxy for token count)": plain_numbers(
            [len(json.dumps(params).split()) for params in asked]
        ),
        "Number of turns": plain_numbers([number for number in turns if number]),
        "Temperature": plain_numbers([p["temperature"] for p in asked if p.get("temperature") is not None]),
        "Number of unique create params": len({json.dumps(params, sort_keys=True) for params in asked}),
        "Number of unique user messages": len({json.dumps(plain_message(one), sort_keys=True) for one in messages}),
    }
    if any("top_p" in params for params in asked):
        metrics["Top p"] = plain_numbers([params["top_p"] for params in asked if "top_p" in params])
    for name in ("a", "b", "c"):
        values = [one[name] for one in rows if name in one]
        flat = [x for value in values for x in (value if isinstance(value, list) else [value])]
        flat = [value for value in flat if isinstance(value, (str, bool, int, float))]
        if any(isinstance(value, str) for value in flat):
            different = len({value if isinstance(value, str) else float(value) for value in flat})
            metrics[name] = {"unique_count": different, "total_count": len(flat)}
        elif flat:
            metrics[name] = plain_numbers(flat)
    return metrics


def plain_message(content):
    return content[0]["text"] if isinstance(content, list) and len(content) == 1 else content


def plain_numbers(values):
    if not values:
        return NOTHING
    exact = [Fraction(value) for value in values]
    average = sum(exact) / len(exact)
    variance = sum((value - average) ** 2 for value in exact) / (len(exact) - 1) if len(exact) > 1 else 0
    return numbers_of(len(values), *map(float, (average, min(exact), max(exact))), math.sqrt(variance))


def assert_equal_to_the_last_digit(found, expected):
    """Rounded numbers may differ by one in the last digit where the exact value lies between two."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            for statistic, number in value.items():
                digit = 0.0101 if abs(number) >= 1 else 0.00101
                assert abs(found[name][statistic] - number) <= digit / 1.9, (name, statistic)
        else:
            assert found[name] == value, name


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 3))
def test_metrics_are_those_of_the_plain_rules(rows, repeats):
    repeated = [one for one in rows for _ in range(repeats)]
    assert_equal_to_the_last_digit(measure(rows, repeats=repeats), plain_measure(repeated))


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS)
def test_two_datasets_together_are_measured_as_one(first, second):
    parts = [MetricsAccumulator(repeats=2), MetricsAccumulator()]
    for part, rows in zip(parts, (first, second), strict=True):
        for one in rows:
            part.add(one)
    assert combine_metrics(parts) == measure([one for one in first for _ in range(2)] + second)


def row_by_row(rows, monkeypatch):
    """Measured without the short ways for what most rows are like."""
    with monkeypatch.context() as patched:
        patched.setattr(dataset_metrics, "read_plain_messages", lambda given: None)
        return measure(rows, count_tokens=len)


ALIKE = st.fixed_dictionaries(
    {"a": SCALARS, "b": st.integers(-5, 5), "c": st.floats(), "d": TEXTS, "e": st.none() | st.just([1, "x"])}
)
HUGE = st.sampled_from([2**1023 - 1, 2**1023, -(2**1023), -(2**1024), 10**400, 1, True])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(PARAMS, ALIKE | ALIKE.map(lambda one: {**one, "b": 1.5})), max_size=8)
    | st.lists(st.tuples(PARAMS, st.fixed_dictionaries({"n": st.none(), "h": HUGE}))),
    st.integers(1, 4),
)
def test_rows_measured_together_are_measured_as_one_by_one(monkeypatch, drawn, together):
    monkeypatch.setattr(dataset_metrics, "_ROWS_TOGETHER", together)
    rows = [row(params, **values) for params, values in drawn]
    found, expected = measure(rows, count_tokens=len), row_by_row(rows, monkeypatch)
    assert list(found.items()) == list(expected.items())
