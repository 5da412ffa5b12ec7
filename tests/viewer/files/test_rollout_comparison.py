# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._results.compare_files import compare
from nemo_gym._viewer.files.one_rollout import read_rollout
from nemo_gym._viewer.files.rollout_comparison import compare_files, compare_rollouts, find_first_difference


def test_the_first_difference_is_marked_by_block_and_character(rollout):
    left, right = (read_rollout(rollout(text=text)) for text in ("the answer is 4", "the answer was 4"))
    diff = compare_rollouts(left, right)
    assert diff.first == 1
    assert [pair.same for pair in diff.pairs] == [True, False]
    assert diff.pairs[1].at == len("the answer ")


def test_equal_rollouts_have_no_difference(rollout):
    assert compare_rollouts(read_rollout(rollout()), read_rollout(rollout())).first is None


def test_one_conversation_may_end_before_the_other(rollout):
    diff = compare_rollouts(read_rollout(rollout()), read_rollout(rollout(tools=("search",))))
    assert diff.first == 1
    assert [(pair.left is None, pair.right is None) for pair in diff.pairs] == [(False, False)] * 2 + [
        (True, False)
    ] * 2
    assert diff.pairs[1].at is None  # a message and a tool call have no character in common


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_texts_are_the_same_up_to_the_first_difference_and_differ_there(one, other):
    at = find_first_difference(one, other)
    if at is None:
        assert one == other
    else:
        assert one[:at] == other[:at]
        assert one[at : at + 1] != other[at : at + 1]


@pytest.fixture
def two(write, opened, rollout):
    def two(before: dict[int, list[float]], after: dict[int, list[float]], question=lambda task: f"question {task}"):
        paths = []
        for name, rewards in (("a.jsonl", before), ("b.jsonl", after)):
            rows = [rollout(task, number, reward) for task, of in rewards.items() for number, reward in enumerate(of)]
            for row in rows:
                if name == "b.jsonl":
                    row["responses_create_params"]["input"] = question(row["_ng_task_index"])
            paths.append(write(name, rows))
        return [opened(path) for path in paths]

    return two


def test_files_are_matched_by_task(two):
    compared = compare_files(*two({0: [1, 0], 1: [0, 0], 2: [1], 7: [1]}, {0: [1, 1], 1: [0, 0], 2: [0], 8: [1]}))
    assert [(task.task_label, task.difference, task.winner) for task in compared.tasks] == [
        ("2", -1.0, "baseline"),
        ("0", 0.5, "run"),
        ("1", 0.0, "tie"),
    ]
    assert (compared.only_in_baseline, compared.only_in_run, compared.note) == ([7], [8], "")
    assert (compared.tasks[0].baseline_row, compared.tasks[0].run_row) == (4, 4)


def test_the_statistics_are_those_of_eval_compare(two):
    baseline, run = two({0: [1, 0], 1: [0, 0], 2: [1, 0]}, {0: [1, 1], 1: [0, 1], 2: [0, 0]})
    statistics = compare_files(baseline, run).statistics
    [expected] = compare([baseline.path, run.path]).comparisons
    assert statistics == expected


def test_tasks_that_ask_different_things_are_told(two):
    compared = compare_files(*two({0: [1], 1: [1]}, {0: [1], 1: [1]}, question=lambda task: f"other {task}"))
    assert "2 of 2 that were checked ask different things" in compared.note


def test_files_without_a_common_task_say_so(two):
    compared = compare_files(*two({0: [1]}, {1: [1]}))
    assert (compared.statistics, compared.tasks) == (None, [])
    assert compared.note == "The files have no scored task in common."
