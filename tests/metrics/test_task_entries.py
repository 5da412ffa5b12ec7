# SPDX-License-Identifier: Apache-2.0
"""The entries of tasks, as JSON."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis.strategies import dictionaries, floats, integers, lists, none, one_of, sampled_from, tuples

from nemo_gym._metrics import task_entries as module
from nemo_gym._metrics.profile import profile, without_histograms
from nemo_gym._metrics.rollouts import MeasuredRollout
from nemo_gym._metrics.task_entries import TaskEncoder
from tests.support.measured import make_rollout

NUMBERS = one_of(integers(-5, 5), floats(-1e6, 1e6), sampled_from([2**63, -(2**63), 1e200, 1e-300, 0.0]))
NAMES = sampled_from(["a", 'quo"te', "zero\0", "käse", "rollout_id", "sample", "num_rollouts"])
TASKS = lists(
    tuples(lists(NUMBERS, min_size=1, max_size=4), dictionaries(NAMES, NUMBERS, max_size=3)), min_size=1, max_size=5
)
SAMPLE = b'{"question":"a, b","n":[1,2]}'


def encode_in_general(monkeypatch, *arguments, threshold):
    """The same entry without a form."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "_MOST_FORMS", 0)
        return TaskEncoder(threshold).encode(*arguments)


@given(TASKS, integers(0, 2), one_of(none(), floats(0, 1)))
@settings(max_examples=100, deadline=None)
def test_a_form_gives_the_bytes_that_a_plain_entry_gives(tasks, missing, threshold):
    encoder = TaskEncoder(threshold)
    with pytest.MonkeyPatch.context() as patch:
        for task, (rewards, others) in enumerate(tasks):
            fields, values = ("reward", *others), tuple(others.values())
            rollouts = [
                MeasuredRollout((task, 3 * r), reward, fields, (reward, *values)) for r, reward in enumerate(rewards)
            ]
            arguments = (task, rollouts, len(rollouts) + missing, SAMPLE)
            assert encoder.encode(*arguments) == encode_in_general(patch, *arguments, threshold=threshold)
    assert encoder._forms


@pytest.mark.parametrize("rewards", [[1.0], [1.0, 0.0]])
def test_an_entry_says_what_the_metrics_say(rewards):
    rows = [{"_ng_task_index": 7, "_ng_rollout_index": r, "x": 1} for r in range(4)]
    results = [{**rows[r], "reward": reward, "right": reward > 0.4} for r, reward in enumerate(rewards)]
    [theirs] = profile(rows, results, allow_partial=True, pass_threshold=0.5).tasks
    rollouts = [make_rollout((7, r), {"x": 1, "reward": one, "right": int(one > 0.4)}) for r, one in enumerate(rewards)]
    ours = TaskEncoder(0.5).encode(7, rollouts, 4, orjson.dumps(rows[0]))
    assert orjson.loads(ours) == without_histograms(theirs)


def test_a_task_without_rollouts_has_counts_only():
    entry = orjson.loads(TaskEncoder().encode(3, [], 2, b"{}"))
    assert entry == {
        "_ng_task_index": 3,
        "sample": {},
        "num_rollouts": 0,
        "expected_num_rollouts": 2,
        "missing_num_rollouts": 2,
        "reward_profile_completion_pct": 0.0,
        "rollout_infos": [],
    }


def test_rollouts_of_different_fields_are_described_by_those_that_have_them():
    rollouts = [make_rollout((0, 0), {"reward": 1.0}), make_rollout((0, 1), {"reward": 0.0, "turns": 3})]
    entry = orjson.loads(TaskEncoder().encode(0, rollouts, 2, b"{}"))
    assert (entry["mean/reward"], entry["mean/turns"]) == (0.5, 3.0)
    assert entry["rollout_infos"][1] == {
        "rollout_id": "0:1",
        "_ng_task_index": 0,
        "_ng_rollout_index": 1,
        "reward": 0.0,
        "turns": 3,
    }
