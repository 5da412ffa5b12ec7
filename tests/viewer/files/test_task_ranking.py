# SPDX-License-Identifier: Apache-2.0
"""Which tasks of a profile are hard, easy or mixed."""

import statistics

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, floats, integers, lists

from nemo_gym._viewer.files.task_ranking import rank_tasks


def without_rows(_):
    return {}


def ranked(*rewards, **options):
    return rank_tasks(dict(enumerate(rewards)), without_rows, **options)


def tasks(listed):
    return [one.task for one in listed]


def test_tasks_are_ranked_by_their_mean_and_by_how_much_their_rollouts_disagree():
    ranking = ranked([1, 1, 1], [0, 0, 0], [0, 0, 1], [0.4, 0.5, 0.6])
    assert tasks(ranking.hardest) == [1, 2, 3, 0]
    assert tasks(ranking.easiest) == [0, 3, 2, 1]
    assert tasks(ranking.most_mixed) == [2, 3]
    assert (ranking.histogram.counts, ranking.n_tasks) == ([5, 1, 1, 1, 4], 4)


def test_a_rollout_passes_from_the_threshold_on():
    assert ranked([0.4, 0.5, 1.0]).hardest[0].pass_rate == pytest.approx(1 / 3)
    assert ranked([0.4, 0.5, 1.0], pass_threshold=0.5).hardest[0].pass_rate == pytest.approx(2 / 3)


def test_a_task_without_rollouts_is_not_ranked():
    assert tasks(ranked([], [1.0]).hardest) == [1]
    assert ranked().histogram is None
    assert list(ranked().tables()) == []


def test_few_tasks_are_listed_once_and_many_at_both_ends():
    assert [title for title, _ in ranked([1, 0], [1, 1]).tables()] == [
        "rewards",
        "tasks, hardest first",
        "most mixed tasks",
    ]
    assert [title for title, _ in ranked(*[[1]] * 6).tables()] == ["rewards", "hardest tasks", "easiest tasks"]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"responses_create_params": {"input": "One\n question?"}}, "One question?"),
        (
            {
                "responses_create_params": {
                    "input": [
                        {"role": "user", "content": "first"},
                        {"role": "assistant", "content": "yes?"},
                        {"role": "user", "content": [{"type": "input_text", "text": "\x1b[2Jlast"}]},
                    ]
                }
            },
            "[2Jlast",
        ),
        ({"responses_create_params": {"input": "x" * 100}}, "x" * 59 + "…"),
        ({"question": "raw row"}, "raw row"),
        ({}, ""),
    ],
)
def test_a_task_is_shown_by_its_last_user_message(row, prompt):
    ranking = rank_tasks({7: [1.0]}, lambda wanted: dict.fromkeys(wanted, row))
    assert ranking.hardest[0].prompt == prompt


@given(dictionaries(integers(0, 30), lists(floats(-1e3, 1e3), min_size=1, max_size=5), min_size=1, max_size=20))
def test_the_lists_hold_the_extremes(rewards):
    ranking = rank_tasks(rewards, without_rows)
    means = {task: statistics.fmean(values) for task, values in rewards.items()}
    assert ranking.hardest[0].mean_reward == pytest.approx(min(means.values()), abs=1e-9)
    assert ranking.easiest[0].mean_reward == pytest.approx(max(means.values()), abs=1e-9)
    assert sum(ranking.histogram.counts) == sum(map(len, rewards.values()))
    for one in ranking.most_mixed:
        assert one.std_reward == pytest.approx(statistics.pstdev(rewards[one.task]), abs=1e-6)
        assert len(set(rewards[one.task])) > 1
