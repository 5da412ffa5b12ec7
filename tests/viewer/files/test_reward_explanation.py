# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._viewer.files.one_rollout import read_rollout
from nemo_gym._viewer.files.reward_explanation import read_targets, shorten

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "arguments", "x"]), inner),
    max_leaves=6,
)
_NAMES = st.sampled_from(["expected_answer", "answer", "label", "verifier_metadata", "ground_truth", "reward", "id"])


def scoring(rollout, task=None, **fields):
    return read_rollout(rollout(**fields), task).scoring


@pytest.mark.parametrize(
    ("task", "targets"),
    [
        ({"expected_answer": "4"}, [("expected_answer", "4")]),
        ({"ground_truth": 4}, [("ground_truth", 4)]),
        ({"answers": ["4", "four"]}, [("answers", ["4", "four"])]),
        ({"label": "B", "id": 3}, [("label", "B")]),
        ({"verifier_metadata": {"answer": "4", "seed": 1}}, [("verifier_metadata.answer", "4")]),
        ({"verifier_metadata": {"unit_tests": [1]}}, [("verifier_metadata", {"unit_tests": [1]})]),
        ({"expected_answer": None}, []),
        ({}, []),
    ],
)
def test_the_target_comes_from_the_task(rollout, task, targets):
    assert read_targets(rollout(), task) == targets


def test_the_target_is_in_the_row_where_no_plan_is_left(rollout):
    assert read_targets(rollout(expected_answer="4", answer="5"), None) == [("expected_answer", "4")]
    assert read_targets(rollout(answer="4"), None) == [("answer", "4")]


def test_what_the_verifier_added_is_told_from_what_the_task_had(rollout):
    task = {"answers": ["4"], "category": "sums", "difficulty": 3}
    fields = {**task, "answer": "5", "overlap": 0.5, "reward_components": {"format": 1.0, "correct": 0.0}}
    found = scoring(rollout, task, text="It is 5.", **fields)
    assert (found.answer, found.targets) == ("It is 5.", [("answers", ["4"])])
    assert found.verdict == [("answer", "5")]
    assert found.components == [("overlap", 0.5), ("reward_components.format", 1.0), ("reward_components.correct", 0.0)]
    assert found.task_fields == [("category", "sums"), ("difficulty", 3)]


def test_expected_calls_stand_beside_those_made(rollout):
    task = {"ground_truth": [{"name": "search", "arguments": '{"x": 1}'}, {"name": "send", "arguments": {"to": "me"}}]}
    found = scoring(rollout, task, tools=("search", "search", "look"))
    assert found.targets == []
    assert [(call.name, call.matched) for call in found.expected_calls] == [("search", True), ("send", False)]
    made = [("search", True), ("search", False), ("look", False)]
    assert [(call.name, call.matched) for call in found.made_calls] == made


def test_a_list_that_is_not_of_calls_stays_a_target(rollout):
    found = scoring(rollout, {"ground_truth": [{"name": "no arguments"}]})
    assert (len(found.targets), found.expected_calls) == (1, [])


@settings(max_examples=40, deadline=None)
@given(row=st.dictionaries(_NAMES, _JSON), task=st.none() | st.dictionaries(_NAMES, _JSON))
def test_fields_of_any_shape_are_sorted_and_none_is_lost(row, task):
    found = read_rollout(row, task).scoring
    shown = {name.partition(".")[0] for name, _ in (*found.targets, *found.components, *found.verdict)}
    kept = {name for name in row if name != "reward" and name not in (task or {})}
    calls = {"ground_truth", "expected_answer", "answer", "label"} if found.expected_calls else set()
    assert kept <= shown | calls | ({"verifier_metadata"} if found.targets or found.expected_calls else set())


@pytest.mark.parametrize(
    ("value", "text"),
    [("a\n  b", "a b"), (["only"], "only"), ([1, 2], "[1,2]"), ("x" * 50, "x" * 9 + "…"), (3, "3")],
)
def test_a_value_fits_on_one_line(value, text):
    assert shorten(value, 10) == text


def test_calls_on_one_line_are_their_names():
    assert shorten([{"name": "a", "arguments": "{}"}, {"name": "b", "arguments": "{}"}], 40) == "a, b"
