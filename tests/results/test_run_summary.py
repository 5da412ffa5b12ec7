# SPDX-License-Identifier: Apache-2.0
"""The summary of a run, while it lasts and afterwards."""

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._results.aggregate_files import METRIC_HEADING, Requested, make_metric_table
from nemo_gym._results.metrics.describe import are_binary
from nemo_gym._results.metrics.intervals import compute_interval_over_tasks
from nemo_gym._results.run_summary import RunningMean, RunSummary
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._transport.failures import Failure
from tests.support.measured import aggregate_files


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def scored(reward, task=0, agent="a"):
    usage = {"input_tokens": 10, "output_tokens": 3}
    row = {"_ng_task_index": task, "agent_ref": {"name": agent}}
    return Scored(row, {**row, "reward": reward, "response": {"usage": usage}}, attempts=1, elapsed_s=0.1)


def failed(kind, message):
    return Failed({}, Failure(kind, "/run", True, message), attempts=1, elapsed_s=0.1)


def test_outcomes_are_counted():
    clock = Clock()
    summary = RunSummary(requested=10, clock=clock)
    for outcome in (scored(1.0), scored(0.0), failed("timeout", "t"), failed("agent", "x"), failed("timeout", "t")):
        summary.add(outcome)
    clock.now += 2.0
    summary.finish()
    clock.now += 50.0
    assert (summary.scored, summary.failed, summary.ended) == (2, 3, 5)
    assert (summary.input_tokens, summary.output_tokens) == (20, 6)
    assert (summary.wall_time_s, summary.rate_per_s) == (2.0, 2.5)
    assert summary.eta_s == 2.0
    assert summary.failure_table()[1:] == [["timeout", "2", "t"], ["agent", "1", "x"]]


def test_a_failure_never_becomes_a_zero():
    summary = RunSummary(requested=2)
    summary.add(failed("verifier", "boom"))
    assert (summary.rewards, summary.scored) == ({}, 0)
    summary.add(scored(1.0))
    assert summary.rewards["a"].interval().estimate == 1.0


def test_only_a_few_examples_are_kept_of_a_kind():
    summary = RunSummary(requested=None)
    for number in range(100):
        summary.add(failed("agent", f"{number} " + "x" * 1000))
    group = summary.failures["agent"]
    assert (group.count, len(group.examples), max(map(len, group.examples))) == (100, 3, 300)


def test_what_an_earlier_session_recorded_counts_but_says_nothing_of_the_pace():
    clock = Clock()
    summary = RunSummary(requested=4, clock=clock)
    summary.add_earlier({"reward": 1.0, "agent_ref": {"name": "a"}})
    clock.now += 1.0
    assert (summary.scored, summary.rate_per_s, summary.eta_s) == (1, None, None)
    summary.add(scored(0.0))
    assert (summary.rate_per_s, summary.eta_s) == (1.0, 3.0), "what is requested is what this session has to play"
    assert summary.rewards["a"].interval().estimate == 0.5


def test_every_number_of_the_table_says_how_many_were_scored(run):
    rollouts = run("r.jsonl", [[1.0, 0.0], [1.0, None]])
    rows = make_metric_table(aggregate_files([rollouts], requested=Requested.count_beside([rollouts])))
    assert rows[0] == ["agent", *METRIC_HEADING]
    # Two tasks have three rollouts; one of them has too few for pass@2.
    assert [row[-2:] for row in rows[1:4]] == [["2 of 2", "3 of 4"], ["1 of 2", "2 of 4"], ["1 of 2", "2 of 4"]]
    assert [row[:3] for row in rows[1:4]] == [
        ["a", "mean/reward", "0.6667"],
        ["a", "pass@2/accuracy", "100"],
        ["a", "pass@1[avg-of-2]/accuracy", "50"],
    ]
    assert ["a", "mean/input_tokens", "10", "no spread seen", "2 of 2", "3 of 4"] in rows


REWARDS = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-1e6, 1e6))


@given(st.lists(st.tuples(st.integers(0, 5), REWARDS), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_it_is_at_every_moment_what_the_aggregate_would_say(rollouts):
    running, by_task = RunningMean(), dict[int, list[float]]()
    for task, reward in rollouts:
        running.add(task, reward)
        by_task.setdefault(task, []).append(reward)
        rewards = [*by_task.values()]
        whole = compute_interval_over_tasks(rewards, binary=all(map(are_binary, rewards)))
        now = running.interval()
        assert (now.n_tasks, now.low is None) == (whole.n_tasks, whole.low is None)
        scale = max(1.0, *(abs(reward) for _, reward in rollouts))
        for mine, theirs in ((now.estimate, whole.estimate), (now.low, whole.low), (now.high, whole.high)):
            assert mine == theirs if theirs is None else mine == pytest.approx(theirs, abs=1e-6 * scale)


def test_repeats_of_a_task_do_not_look_like_knowing_more():
    once, often = RunningMean(), RunningMean()
    for task in range(4):
        once.add(task, task % 2)
        for _ in range(100):
            often.add(task, task % 2)
    assert often.interval() == once.interval()
    assert often.scored == 400


def test_five_of_five_is_no_proof_of_always():
    running = RunningMean()
    for task in range(5):
        running.add(task, 1.0)
    assert (running.interval().estimate, running.interval().high) == (1.0, 1.0)
    assert 0.4 < running.interval().low < 0.5
