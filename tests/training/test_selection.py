# SPDX-License-Identifier: Apache-2.0
"""Groups are made of the rollouts that may be trained on; failures are counted, and nothing is counted twice."""

import pytest

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._training.selection import Group, Selection, open_survey
from tests.training.rollout_rows import make_failure, make_row, write_rows


def survey(*files, **options):
    found = open_survey(list(files), **{"needs_tokens": True, **options})
    found.survey()
    return found


def test_a_group_knows_its_size_its_scored_members_and_its_failures(tmp_path):
    rows = [
        make_row(0, 0, 1.0),
        make_row(0, 1, 0.0),
        make_row(0, 2, with_tokens=False),
        make_row(0, 3, mask_sample=True),
    ]
    file = write_rows(tmp_path / "r.jsonl", rows)
    write_rows(tmp_path / "r_failures.jsonl", [make_failure(0, 4), make_failure(0, 4), make_failure(0, 0)])
    found = survey(file)
    group = found.groups["player", 0]
    assert (group.size, group.scored, group.failed, group.pass_rate) == (5, 2, 1, 0.5)
    assert (group.lowest, group.highest) == (0.0, 1.0)
    assert (found.failed, found.invalid, found.without_tokens) == ({"timeout": 1}, {"mask_sample": 1}, 1)


def test_a_failures_file_that_is_given_itself_is_read_once(tmp_path):
    file = write_rows(tmp_path / "r.jsonl", [make_row(0, 0)])
    failures = write_rows(tmp_path / "r_failures.jsonl", [make_failure(0, 1)])
    assert survey(file, failures).failed == {"timeout": 1}


def test_a_rollout_that_occurs_twice_is_refused_with_both_places(tmp_path):
    first = write_rows(tmp_path / "a.jsonl", [make_row(0, 0)])
    second = write_rows(tmp_path / "b.jsonl", [make_row(0, 0)])
    with pytest.raises(ResultsError, match=r"a\.jsonl:1 and .*b\.jsonl:1"):
        survey(first, second)


def test_rows_that_come_later_are_left_alone(tmp_path):
    file = write_rows(tmp_path / "r.jsonl", [make_row(0, 0)])
    found = survey(file)
    write_rows(file, [make_row(0, 0), make_row(1, 0)])
    assert [line.key for _, line in found.read_again()] == [(0, 0)]


@pytest.mark.parametrize(
    ("selection", "objection"),
    [
        (Selection(), None),
        (Selection(keep_groups="mixed"), None),
        (Selection(min_pass_rate=0.5, max_pass_rate=0.5), None),
        (Selection(min_pass_rate=0.6), "pass rate too low"),
        (Selection(max_pass_rate=0.4), "pass rate too high"),
        (Selection(min_reward=0.6), "reward too low"),
    ],
)
def test_a_rollout_is_judged_by_its_reward_and_its_group(tmp_path, selection, objection):
    rows = [make_row(0, 0, 0.5), make_row(0, 1, 1.0)]
    found = survey(write_rows(tmp_path / "r.jsonl", rows))
    rollout, _ = next(found.read_again())
    assert selection.explain_skip(rollout, found.groups[rollout.group]) == objection


def test_a_group_of_equal_rewards_is_not_mixed():
    assert Selection(keep_groups="mixed").explain_skip(None, Group(2, 0, 2, 2, 1.0, 1.0)) is not None


@pytest.mark.parametrize("rates", [(1.5, None), (None, -0.1), (0.8, 0.2)])
def test_pass_rates_that_no_task_can_have_are_refused(rates):
    with pytest.raises(ResultsError, match="pass rate"):
        Selection(min_pass_rate=rates[0], max_pass_rate=rates[1])
