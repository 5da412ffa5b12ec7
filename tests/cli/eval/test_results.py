# SPDX-License-Identifier: Apache-2.0
"""What is noted of every rollout gives the metrics that the rollouts themselves give."""

import pytest

from nemo_gym._results.aggregate_files import write_aggregates
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._transport.failures import Failure
from nemo_gym._util.jsonl_files import write_rows
from nemo_gym.cli.eval.results import keep_scores
from tests.support.measured import aggregate_files

FAILED = Failed({}, Failure("agent", "a/run", False, "broken"), 1, 0.1)


def scored(task: int, **fields: object) -> Scored:
    key = {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}
    response = {"output": ["long"] * 100, "usage": {"input_tokens": 10 + task, "output_tokens": 2}}
    result = {"response": response, "reward": task % 2, "right": True, "said": "A", **fields, **key}
    return Scored(key, result, 1, 0.1)


@pytest.fixture
def paths(tmp_path):
    return RunPaths.of(tmp_path / "r.jsonl")


def test_the_metrics_are_the_same_and_nothing_is_left_behind(paths):
    outcomes = [scored(task) for task in range(20)]
    write_rows(paths.output, (outcome.result for outcome in outcomes))
    with keep_scores(paths, complete=True) as scores:
        for outcome in (*outcomes, FAILED):
            scores.add(outcome)
        noted = scores.find_rollouts()
        assert noted != paths.output
        assert noted.stat().st_size < paths.output.stat().st_size / 3
        of_notes, of_output = (
            write_aggregates(paths.aggregate_metrics, aggregate_files([one])).read_bytes()
            for one in (noted, paths.output)
        )
        assert of_notes == of_output
    assert not noted.exists()


def test_where_rollouts_were_played_before_they_are_read_themselves(paths):
    paths.scores.write_text("of a run that was killed")
    with keep_scores(paths, complete=False) as scores:
        scores.add(scored(0))
        assert scores.find_rollouts() == paths.output
    assert not paths.scores.exists()


def test_a_run_without_a_score_has_its_output(paths):
    with keep_scores(paths, complete=True) as scores:
        scores.add(FAILED)
        assert scores.find_rollouts() == paths.output


@pytest.mark.parametrize("fields", [{"said": "\ud800"}, {"said": 1 << 70}])
def test_what_cannot_be_noted_costs_nothing_but_time(paths, fields):
    with keep_scores(paths, complete=True) as scores:
        scores.add(scored(0))
        scores.add(scored(1, **fields))
        scores.add(scored(2))
        assert scores.find_rollouts() == paths.output
    assert not paths.scores.exists()


@pytest.mark.parametrize("number", [1, 2000])
def test_a_disk_without_room_for_notes_stops_nobody(paths, number):
    paths.scores.symlink_to("/dev/full")
    with keep_scores(paths, complete=True) as scores:
        for task in range(number):
            scores.add(scored(task))
        assert scores.find_rollouts() == paths.output
    assert not paths.scores.is_symlink()
