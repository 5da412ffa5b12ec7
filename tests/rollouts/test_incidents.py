# SPDX-License-Identifier: Apache-2.0
"""What a result says of crashed tools and of an early end, whoever's agent it comes from."""

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, dictionaries, integers, lists, none, recursive, sampled_from, text

from nemo_gym._rollouts.incidents import copy_incidents

CRASH = {"tool": "look", "status": 500, "message": "boom"}


def lifted(**result):
    copy_incidents(result)
    return result


@pytest.mark.parametrize(
    ("response", "cut_off"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, None),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": "completed", "incomplete_details": None}, None),
        ({"status": "completed", "_ng_cut_off": "max_steps"}, "max_steps"),
        ({"choices": [{"finish_reason": "length"}]}, "length"),
        ({"choices": [{"finish_reason": "stop"}]}, None),
        ({"stop_reason": "max_tokens"}, "length"),
        ({}, None),
    ],
)
def test_a_response_tells_what_cut_it_off(response, cut_off):
    result = lifted(response=response)
    assert result.get("_ng_cut_off") == cut_off
    assert "_ng_cut_off" not in result["response"]


def test_a_rollout_in_which_nothing_happened_has_no_key_of_it():
    assert lifted(reward=1.0, response={"output": []}) == {"reward": 1.0, "response": {"output": []}}


def test_crashes_move_from_the_response_to_the_row():
    assert lifted(response={"_ng_tool_errors": [CRASH]}) == {"response": {}, "_ng_tool_errors": [CRASH]}


def test_what_a_row_says_of_crashes_is_bounded():
    [*errors] = lifted(_ng_tool_errors=[{**CRASH, "message": "x" * 10_000}] * 1000)["_ng_tool_errors"]
    assert len(errors) == 20
    assert all(len(error["message"]) == 2000 for error in errors)


ANYTHING = recursive(
    none() | booleans() | integers() | text(max_size=5),
    lambda inner: (
        lists(inner, max_size=3)
        | dictionaries(sampled_from(["tool", "status", "message", "reason", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = sampled_from(["_ng_tool_errors", "_ng_cut_off", "incomplete_details", "status", "choices", "stop_reason"])


@given(dictionaries(KEYS, ANYTHING), dictionaries(KEYS | sampled_from(["response"]), ANYTHING))
def test_whatever_an_agent_sends_the_row_has_the_form_that_readers_expect(response, result):
    copy_incidents(result := {"response": response, **result})
    assert result.get("_ng_cut_off") in (None, "max_steps", "length")
    for error in result.get("_ng_tool_errors", [CRASH]):
        assert {name: type(value) for name, value in error.items()} == {"tool": str, "status": int, "message": str}
