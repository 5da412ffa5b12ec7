# SPDX-License-Identifier: Apache-2.0
"""What is scored again."""

import pytest

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.reverify import choose_output, plan_reverification, require_output


@pytest.fixture
def judged(write, planned, result):
    """A run of four: two scored, two that the judge gave no verdict on, one of which was scored later."""
    inputs = write("r_materialized_inputs.jsonl", [planned(t, 0) for t in range(4)])
    rollouts = write("r.jsonl", [result(2, 0, 1.0), result(0, 0, 0.0)])
    failed = [
        result(1, 0, 0.0, _ng_failure_class="judge_failed", response={"id": "old"}),
        result(1, 0, 0.0, _ng_failure_class="judge_failed", response={"id": "new"}),
        result(2, 0, 0.0, _ng_failure_class="judge_failed"),
        result(3, 0, None, _ng_failure_class="timeout"),
    ]
    write("r_failures.jsonl", failed)
    return inputs, rollouts


def test_a_payload_is_the_input_row_with_the_stored_response(write, planned, result, tmp_path):
    inputs = write("p.jsonl", [planned(0, 0), planned(1, 0, agent="b")])
    rollouts = write("r.jsonl", [result(1, 0, 1.0, response={"id": "one"}), result(0, 0, 1.0)])
    plan = plan_reverification(inputs, rollouts, tmp_path / "new.jsonl")
    first, second = plan.payloads()
    assert (first.key, first.agent) == ((1, 0), "b")
    assert first.row == planned(1, 0, agent="b") | {"response": {"id": "one"}}
    assert second.key == (0, 0)
    assert (plan.n_requested, plan.n_seeds, plan.n_done) == (2, 0, 0)


def test_what_is_known_of_a_response_goes_with_it(write, planned, result, tmp_path):
    known = {
        "mask_sample": True,
        "_ng_token_drift": {"class": "forked"},
        "_ng_policy_versions": {"start": 7, "end": 8, "straddles": True},
    }
    inputs, rollouts = write("p.jsonl", [planned(0, 0)]), write("r.jsonl", [result(0, 0, 1.0, **known)])
    (payload,) = plan_reverification(inputs, rollouts, tmp_path / "new.jsonl").payloads()
    assert {name: payload.row[name] for name in known} == known


def test_a_limit_takes_the_first(judged, tmp_path):
    plan = plan_reverification(*judged, tmp_path / "new.jsonl", limit=1)
    assert [payload.key for payload in plan.payloads()] == [(2, 0)]


def test_resume_leaves_alone_what_is_done(judged, write, result):
    output = write("new.jsonl", [result(2, 0, 1.0)])
    plan = plan_reverification(*judged, output, resume=True)
    assert [payload.key for payload in plan.payloads()] == [(0, 0)]
    assert (plan.n_done, plan.n_requested) == (1, 2)


def test_a_resumed_limit_counts_what_is_done(judged, write, result):
    output = write("new.jsonl", [result(2, 0, 1.0)])
    assert plan_reverification(*judged, output, resume=True, limit=1).todo == []


def test_failed_judgments_are_redone_and_scores_copied(judged, tmp_path):
    plan = plan_reverification(*judged, tmp_path / "new.jsonl", judge_failed_only=True)
    [payload] = plan.payloads()
    assert (payload.key, payload.row["response"]) == ((1, 0), {"id": "new"})
    assert [row["_ng_task_index"] for row in plan.seeds()] == [2, 0]
    assert plan.n_requested == 3


def test_failed_judgments_can_be_appended_to_the_run_itself(judged):
    plan = plan_reverification(*judged, judged[1], judge_failed_only=True, append=True)
    assert [payload.key for payload in plan.payloads()] == [(1, 0)]
    assert list(plan.seeds()) == []
    assert plan.n_requested == 3


def test_a_resumed_copy_is_completed(judged, write, result):
    output = write("new.jsonl", [result(2, 0, 1.0)])
    plan = plan_reverification(*judged, output, judge_failed_only=True, resume=True)
    assert [row["_ng_task_index"] for row in plan.seeds()] == [0]
    assert (plan.n_done, plan.n_seeds, len(plan.todo)) == (1, 1, 1)


def test_without_a_failures_file_there_is_no_failed_judgment(write, planned, result, tmp_path):
    paths = write("p.jsonl", [planned(0, 0)]), write("r.jsonl", [result(0, 0, 1.0)])
    with pytest.raises(ResultsError, match=r"r_failures\.jsonl"):
        plan_reverification(*paths, tmp_path / "new.jsonl", judge_failed_only=True)


def test_a_response_without_its_input_is_an_error_with_file_and_line(write, planned, result, tmp_path):
    inputs, rollouts = write("p.jsonl", [planned(0, 0)]), write("r.jsonl", [result(0, 0, 1.0), result(1, 0, 1.0)])
    with pytest.raises(ResultsError, match=f"1 stored responses have no row in '{inputs}': {rollouts}:2"):
        plan_reverification(inputs, rollouts, tmp_path / "new.jsonl")


def test_a_row_without_a_response_is_an_error_with_file_and_line(write, planned, result, tmp_path):
    inputs, rollouts = write("p.jsonl", [planned(0, 0)]), write("r.jsonl", [result(0, 0, 1.0, response=None)])
    with pytest.raises(ResultsError, match=f"{rollouts}:1: the row holds no response"):
        plan_reverification(inputs, rollouts, tmp_path / "new.jsonl")


def test_servers_that_are_not_stateless_take_force_and_show_in_the_name(tmp_path):
    output = tmp_path / "new.jsonl"
    assert choose_output(output, {"rs": "stateless"}, force=True) == output
    with pytest.raises(ResultsError, match=r"'rs' \(unknown\)"):
        choose_output(output, {"rs": "unknown", "other": "stateless"})
    assert choose_output(output, {"rs": "unknown"}, force=True) == tmp_path / "unsafe_new.jsonl"
    assert choose_output(tmp_path / "unsafe_new.jsonl", {"rs": "x"}, force=True) == tmp_path / "unsafe_new.jsonl"


def test_an_output_that_exists_needs_a_word(write, result, tmp_path):
    output = write("new.jsonl", [result(0, 0, 1.0)])
    with pytest.raises(ResultsError, match="exists"):
        require_output(output)
    for word in ("overwrite", "resume", "append"):
        require_output(output, **{word: True})
    require_output(tmp_path / "other.jsonl")
    with pytest.raises(ResultsError, match="choose one"):
        require_output(output, overwrite=True, resume=True)
