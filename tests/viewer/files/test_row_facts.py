# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._viewer.files.row_facts import (
    CUT_OFF,
    FAILED,
    SCORED,
    TOKENS,
    TOOL_ERROR,
    UNNUMBERED,
    parse_row,
    read_facts,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["response", "responses_create_params", "reward", "agent_ref", "_ng_task_index", "_ng_failure", "output", "usage"]
)


def test_a_scored_rollout_tells_who_what_and_how_much(rollout):
    facts = read_facts(
        rollout(3, 1, 0.5, agent="solver", tools=("search", "search", "submit"), text="four", overlap=0.2)
    )
    assert (facts.kind, facts.task, facts.rollout, facts.agent, facts.reward) == ("rollouts", 3, 1, "solver", 0.5)
    assert (facts.tools, facts.tool_calls, facts.finish) == (("search", "submit"), 3, "completed")
    assert (facts.input_tokens, facts.output_tokens) == (10, 8)
    assert facts.length == len("four") + 3 * len('{"x":1}')
    assert (facts.flags, facts.fields) == (SCORED, {"overlap": 0.2})


def test_the_output_of_a_tool_does_not_count_as_written_by_the_model(rollout):
    row = rollout(text="")
    row["response"]["output"] = [{"type": "function_call_output", "call_id": "c", "output": "long " * 100}]
    assert read_facts(row).length == 0


def test_a_failed_row_is_not_scored_even_if_it_has_a_reward(rollout):
    facts = read_facts(rollout(reward=0.0, _ng_failure_class="judge_failed"))
    assert (facts.flags, facts.failure, facts.kind) == (FAILED, "judge_failed", "failures")


def test_an_incomplete_response_gives_its_reason(rollout):
    row = rollout(status="incomplete")
    row["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    assert read_facts(row).finish == "max_output_tokens"


def test_a_rollout_that_was_cut_off_says_so_instead_of_completed(rollout):
    facts = read_facts(rollout(_ng_cut_off="max_steps"))
    assert facts.flags & CUT_OFF
    assert facts.finish == "max_steps"
    assert not read_facts(rollout()).flags & (CUT_OFF | TOOL_ERROR)


def test_a_response_that_hit_the_most_tokens_was_cut_off(rollout):
    row = rollout(status="incomplete")
    row["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    assert read_facts(row).flags & CUT_OFF


def test_a_crashed_tool_is_noticed(rollout):
    row = rollout(_ng_tool_errors=[{"tool": "search", "status": 500, "message": "no"}])
    assert read_facts(row).flags & TOOL_ERROR


def test_thoughts_count_as_written_and_token_ids_are_noticed(rollout):
    row = rollout()
    row["response"]["output"] = [{"type": "reasoning", "summary": [{"text": "hm"}], "generation_token_ids": [1]}]
    facts = read_facts(row)
    assert facts.flags & TOKENS
    assert facts.length == 2


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"responses_create_params": {"input": "q"}}, "dataset"),
        ({"responses_create_params": {"input": "q"}, "_ng_task_index": 0, "_ng_rollout_index": 0}, "inputs"),
        ({"responses_create_params": {"input": "q"}, "reward": 1}, "rollouts"),
        ({"_ng_failure_class": "timeout"}, "failures"),
        ({"rollout_infos": [], "mean/reward": 0.5}, "profile"),
        ({"avg_reward": 0.5, "responses_create_params": {"input": "q"}}, "profile"),
        ({"anything": 1}, "other"),
    ],
)
def test_the_kind_of_a_row_shows_in_its_keys(row, kind):
    assert read_facts(row).kind == kind


@pytest.mark.parametrize("name", ["mean/reward", "avg_reward"])
def test_a_profiled_task_has_its_mean_reward(name):
    assert read_facts({"rollout_infos": [], name: 0.25}).reward == 0.25


def test_rollouts_without_an_index_are_the_same_task_if_they_ask_the_same(rollout):
    def unnumbered(question: str) -> int | None:
        row = rollout()
        del row["_ng_task_index"]
        row["responses_create_params"]["input"] = question
        facts = read_facts(row)
        assert facts.flags & UNNUMBERED
        return facts.task

    assert unnumbered("one") == unnumbered("one") != unnumbered("two")


@pytest.mark.parametrize("index", [-1, True, "3", 1.0, None, 1 << 40])
def test_an_index_that_is_none_does_not_count(index):
    assert read_facts({"_ng_task_index": index}).task is None


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(_KEYS, _JSON, max_size=6))
def test_any_object_has_facts(row):
    facts = read_facts(row)
    assert facts.length >= 0
    assert not (facts.flags & SCORED and facts.flags & FAILED)


def test_what_strict_json_forbids_is_read_as_far_as_it_makes_sense():
    row = parse_row(b'{"reward": NaN, "list": [Infinity, 1.5], "text": "half of a pair: \\ud83d", "\\ud83d": 1}')
    assert row == {"reward": None, "list": [None, 1.5], "text": "half of a pair: \ufffd", "\ufffd": 1}
    assert math.isnan(read_facts(row).reward)


@pytest.mark.parametrize("raw", [b"[1]", b'"text"', b"{", b'{"a": \xff}', b"nonsense", b"[" * 100_000])
def test_a_line_that_holds_no_object_says_why(raw):
    with pytest.raises(ValueError, match="JSON"):
        parse_row(raw)
