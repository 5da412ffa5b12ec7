# SPDX-License-Identifier: Apache-2.0
"""The summary of a run, while it lasts and afterwards."""

import math
import statistics

import orjson
import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, lists

from nemo_gym._results.aggregate import Requested, aggregate_files
from nemo_gym._results.summary import HEADING, RunSummary, table
from nemo_gym._rollouts.types import Failed, Scored
from nemo_gym._transport.failures import Failure


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def scored(reward):
    usage = {"input_tokens": 10, "output_tokens": 3}
    return Scored({}, {"reward": reward, "response": {"usage": usage}}, attempts=1, elapsed_s=0.1)


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
    assert summary.as_json() == {
        "schema": 1,
        "n_requested": 10,
        "n_scored": 2,
        "n_failed": 3,
        "failed": {"timeout": {"count": 2, "examples": ["t"]}, "agent": {"count": 1, "examples": ["x"]}},
        "mean_reward": 0.5,
        "mean_reward_stderr": 0.5,
        "input_tokens": 20,
        "output_tokens": 6,
        "wall_time_s": 2.0,
        "rollouts_per_s": 2.5,
    }
    assert summary.eta_s == 2.0
    assert summary.failure_table()[1:] == [["timeout", "2", "t"], ["agent", "1", "x"]]
    assert orjson.dumps(summary.as_json())


def test_a_failure_never_becomes_a_zero():
    summary = RunSummary(requested=2)
    summary.add(failed("verifier", "boom"))
    assert (summary.mean_reward, summary.scored) == (None, 0)
    summary.add(scored(1.0))
    assert (summary.mean_reward, summary.stderr) == (1.0, None)


def test_only_a_few_examples_are_kept_of_a_kind():
    summary = RunSummary(requested=None)
    for number in range(100):
        summary.add(failed("agent", f"{number} " + "x" * 1000))
    group = summary.failures["agent"]
    assert (group.count, len(group.examples), max(map(len, group.examples))) == (100, 3, 300)


def test_what_an_earlier_session_recorded_counts_but_says_nothing_of_the_pace():
    clock = Clock()
    summary = RunSummary(requested=4, clock=clock)
    summary.add_earlier({"reward": 1.0})
    clock.now += 1.0
    assert (summary.scored, summary.rate_per_s, summary.eta_s) == (1, None, None)
    summary.add(scored(0.0))
    assert (summary.mean_reward, summary.rate_per_s, summary.eta_s) == (0.5, 1.0, 2.0)


@given(lists(floats(-100, 100), min_size=2, max_size=50))
@settings(max_examples=50, deadline=None)
def test_the_running_mean_is_the_mean(rewards):
    summary = RunSummary(requested=None)
    for reward in rewards:
        summary.add(scored(reward))
    assert summary.mean_reward == pytest.approx(statistics.fmean(rewards), abs=1e-9)
    assert summary.stderr == pytest.approx(statistics.stdev(rewards) / math.sqrt(len(rewards)), abs=1e-6)


def test_every_number_of_the_table_says_how_many_were_scored(run):
    rollouts = run("r.jsonl", [[1.0, 0.0], [1.0, None]])
    rows = table(None, aggregate_files([rollouts], requested=Requested.beside([rollouts])))
    assert rows[0] == HEADING
    assert {row[-1] for row in rows[1:]} == {"3 of 4"}
    assert [row[:3] for row in rows[1:4]] == [
        ["a", "mean/reward", "0.75"],
        ["a", "pass@2/accuracy", "100"],
        ["a", "pass@1[avg-of-2]/accuracy", "50"],
    ]
    assert ["a", "mean/input_tokens", "10", "10 … 10", "3 of 4"] in rows


def test_without_an_aggregate_the_table_shows_the_running_mean():
    summary = RunSummary(requested=3)
    assert table(summary, [])[1] == ["all", "mean/reward", "none", "", "0 of 3"]
    summary.add(scored(1.0))
    summary.add(scored(0.0))
    assert table(summary, [])[1] == ["all", "mean/reward", "0.5", "± 0.5 (standard error)", "2 of 3"]
