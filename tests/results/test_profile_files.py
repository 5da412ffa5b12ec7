# SPDX-License-Identifier: Apache-2.0
"""Reward profiles of runs, as files."""

import orjson
import pytest

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.metrics.task_profile import drop_histograms, profile
from nemo_gym._results.profile_files import write_dataset_profile, write_profile
from nemo_gym._util.jsonl_files import read_rows

REWARDS = [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]


def inputs_of(rollouts):
    return rollouts.with_name(f"{rollouts.stem}_materialized_inputs.jsonl")


def test_the_files_hold_what_the_metrics_say(run):
    rollouts = run("r.jsonl", REWARDS)
    files = write_profile(inputs_of(rollouts), rollouts, pass_threshold=0.5)
    theirs = profile(read_rows(inputs_of(rollouts)), read_rows(rollouts), pass_threshold=0.5)
    assert files.tasks.name == "r_reward_profiling.jsonl"
    assert files.agents.name == "r_agent_metrics.json"
    assert list(read_rows(files.tasks)) == [drop_histograms(entry) for entry in theirs.tasks]
    assert orjson.loads(files.agents.read_bytes()) == [drop_histograms(entry) for entry in theirs.agents]
    assert (files.n_tasks, files.n_scored, files.n_requested) == (3, 9, 9)


def test_the_sample_is_the_input_row_without_its_indices(run, planned):
    rollouts = run("r.jsonl", REWARDS, difficulty="hard")
    tasks = list(read_rows(write_profile(inputs_of(rollouts), rollouts).tasks))
    indices = ("_ng_task_index", "_ng_rollout_index")
    row = planned(2, 0, difficulty="hard")
    assert tasks[2]["sample"] == {key: value for key, value in row.items() if key not in indices}


def test_missing_rollouts_are_an_error_that_says_how_many_were_scored(run):
    rollouts = run("r.jsonl", [[1.0, None], [0.0, 1.0]])
    with pytest.raises(ResultsError, match="3 of 4 rollouts were scored; 1 are missing: 0:1"):
        write_profile(inputs_of(rollouts), rollouts)
    assert not rollouts.with_name("r_reward_profiling.jsonl").exists()


def test_missing_rollouts_can_be_allowed(run):
    rollouts = run("r.jsonl", [[1.0, None], [None, None]])
    files = write_profile(inputs_of(rollouts), rollouts, allow_partial=True)
    some, none = read_rows(files.tasks)
    assert (some["mean/reward"], some["missing_num_rollouts"], some["reward_profile_completion_pct"]) == (1.0, 1, 50.0)
    assert (none["num_rollouts"], none["missing_num_rollouts"], none["rollout_infos"]) == (0, 2, [])
    assert "mean/reward" not in none


def test_a_rollout_that_nobody_planned_is_an_error(run, write, result):
    rollouts = run("r.jsonl", [[1.0]])
    write("r.jsonl", [result(0, 0, 1.0), result(9, 0, 1.0)])
    with pytest.raises(ResultsError, match="1 rollouts have no input row: 9:0"):
        write_profile(inputs_of(rollouts), rollouts)


def test_agents_are_those_of_the_plan(write, planned, result):
    inputs = write("p.jsonl", [planned(0, 0, "x"), planned(1, 0, "y")])
    rollouts = write("r.jsonl", [result(0, 0, 1.0, None), result(1, 0, 0.0, None)])
    agents = orjson.loads(write_profile(inputs, rollouts).agents.read_bytes())
    assert [(agent["agent_ref"]["name"], agent["mean/reward"]) for agent in agents] == [("x", 1.0), ("y", 0.0)]


def test_a_dataset_is_profiled_with_the_deviation_of_the_population(write, result, tmp_path):
    tasks = write("tasks.jsonl", [{"question": "q0", "keep": [1]}, {"question": "q1"}, {"question": "q2"}])
    rollouts = write("r.jsonl", [result(2, 0, 1.0), result(0, 0, 1.0), result(0, 1, 0.0), result(0, 2, None)])
    profiled = write_dataset_profile(tasks, rollouts, tmp_path / "out.jsonl", pass_threshold=1.0)
    assert (profiled.n_tasks, profiled.n_scored) == (2, 4)
    first, second = read_rows(profiled.tasks)
    assert first == {
        "question": "q0",
        "keep": [1],
        "avg_reward": pytest.approx(1 / 3),
        "std_reward": pytest.approx((2 / 9) ** 0.5),
        "min_reward": 0.0,
        "max_reward": 1.0,
        "total_samples": 3,
        "pass_rate": pytest.approx(1 / 3),
        "pass_rate_total": 3,
        "pass_rate_passed": 1,
        "pass_threshold": 1.0,
    }
    assert (second["question"], second["avg_reward"], second["std_reward"]) == ("q2", 1.0, 0.0)


def test_a_dataset_profile_has_pass_rates_only_with_a_threshold(write, result, tmp_path):
    tasks, rollouts = write("tasks.jsonl", [{"q": 0}]), write("r.jsonl", [result(0, 0, 1.0)])
    [row] = read_rows(write_dataset_profile(tasks, rollouts, tmp_path / "out.jsonl").tasks)
    assert list(row) == ["q", "avg_reward", "std_reward", "min_reward", "max_reward", "total_samples"]


def test_equal_lines_are_one_task(write, result, tmp_path):
    tasks = write("tasks.jsonl", [{"q": 0}, {"q": 0}, {"q": 1}])
    rollouts = write("r.jsonl", [result(0, 0, 1.0), result(0, 1, 0.0), result(1, 0, 1.0)])
    rows = list(read_rows(write_dataset_profile(tasks, rollouts, tmp_path / "out.jsonl").tasks))
    assert [(row["q"], row["total_samples"]) for row in rows] == [(0, 2), (1, 1)]


def test_lines_count_one_by_one_where_the_indices_say_so(write, result, tmp_path):
    tasks = write("tasks.jsonl", [{"q": 0}, {"q": 0}, {"q": 1}])
    rollouts = write("r.jsonl", [result(1, 0, 0.0), result(2, 0, 1.0)])
    rows = list(read_rows(write_dataset_profile(tasks, rollouts, tmp_path / "out.jsonl").tasks))
    assert [(row["q"], row["avg_reward"]) for row in rows] == [(0, 0.0), (1, 1.0)]


def test_a_task_is_known_by_the_index_it_carries(write, result, tmp_path):
    tasks = write("tasks.jsonl", [{"q": "x", "_ng_task_index": 7}])
    rollouts = write("r.jsonl", [result(7, 0, 1.0)])
    assert [row["q"] for row in read_rows(write_dataset_profile(tasks, rollouts, tmp_path / "o.jsonl").tasks)] == ["x"]


def test_rollouts_of_another_dataset_are_an_error_and_nothing_is_written(write, result, tmp_path):
    tasks, rollouts = write("tasks.jsonl", [{"q": 0}]), write("r.jsonl", [result(0, 0, 1.0), result(4, 0, 1.0)])
    with pytest.raises(ResultsError, match=r"has rollouts of tasks \[4\]"):
        write_dataset_profile(tasks, rollouts, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_reward_that_is_no_number_is_an_error_with_file_and_line(write, result, tmp_path):
    tasks, rollouts = write("tasks.jsonl", [{"q": 0}]), write("r.jsonl", [result(0, 0, "good")])
    with pytest.raises(ResultsError, match=f"{rollouts}:1: the reward is 'good'"):
        write_dataset_profile(tasks, rollouts, tmp_path / "out.jsonl")
