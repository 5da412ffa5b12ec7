# SPDX-License-Identifier: Apache-2.0
"""The mean reward while a run goes on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._metrics.describe import are_binary
from nemo_gym._metrics.intervals import interval_over_tasks
from nemo_gym._results.summary import RunningMean

REWARDS = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-1e6, 1e6))


@given(st.lists(st.tuples(st.integers(0, 5), REWARDS), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_it_is_at_every_moment_what_the_aggregate_would_say(rollouts):
    running, by_task = RunningMean(), dict[int, list[float]]()
    for task, reward in rollouts:
        running.add(task, reward)
        by_task.setdefault(task, []).append(reward)
        rewards = [*by_task.values()]
        whole = interval_over_tasks(rewards, binary=all(map(are_binary, rewards)))
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
