# SPDX-License-Identifier: Apache-2.0
import os

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._results.aggregate_files import write_aggregates
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._viewer.files import file_overview as overview
from nemo_gym._viewer.files.file_overview import ALL_AGENTS, TokenUsage, make_overview
from nemo_gym._viewer.files.one_rollout import read_rollout
from nemo_gym._viewer.files.row_selection import pick_evenly
from nemo_gym._viewer.files.run_companions import open_failures
from nemo_gym._viewer.html.file_pages import render_overview
from nemo_gym._viewer.html.rollout_page import render_rollout
from nemo_gym._viewer.page.open_files import open_files
from tests.support.measured import aggregate_files

COMPUTED_HERE = (
    "These metrics are computed here: there is no r_aggregate_metrics.json that covers the rollouts as they are."
)


@pytest.fixture
def of_run(write, opened, rollout):
    """The overview of a run with these rewards, task by task."""

    def of_run(rewards: list[list[float]], name: str = "r.jsonl", **fields):
        rows = [rollout(t, r, reward, **fields) for t, runs in enumerate(rewards) for r, reward in enumerate(runs)]
        return make_overview(opened(write(name, rows)))

    return of_run


@pytest.mark.parametrize(
    "rewards",
    [
        [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]],
        [[0.2, 0.9], [0.4, 0.1], [0.0, 1.5]],
        [[1.0], [1.0]],
        [[1.0, 0.0], [1.0]],
    ],
)
def test_metrics_and_intervals_are_those_of_the_aggregate(of_run, tmp_path, rewards):
    [agent] = of_run(rewards, overlap=0.5).agents
    [expected] = aggregate_files([tmp_path / "r.jsonl"])
    assert agent.metrics
    for metric in agent.metrics:
        assert metric.value == pytest.approx(expected.agent_metrics[metric.name])
        if interval := expected.confidence.get(metric.name):
            assert [metric.low, metric.high] == pytest.approx(interval["ci95"] or [None, None])
            assert (metric.n_tasks, metric.n_tasks_left_out) == (interval["n_tasks"], interval["n_tasks_left_out"])
            assert metric.n_scored == interval["n_scored"]
    names = [metric.name for metric in agent.metrics]
    k = max(map(len, rewards))
    score = "accuracy" if agent.is_binary else "reward"
    assert names == ["mean/reward", f"pass@{k}/{score}", f"pass@1[avg-of-{k}]/{score}", "mean/overlap"]


def test_an_overview_counts_rows_rewards_and_tokens(of_run):
    report = of_run([[1.0, 0.0], [1.0, 1.0]])
    assert (report.n_rows, report.n_tasks, report.n_scored, report.n_failed, report.complete) == (4, 2, 4, 0, True)
    [agent] = report.agents
    assert (agent.agent, agent.mean_reward, agent.is_binary) == ("a", 0.75, True)
    assert (agent.histogram.labels, agent.histogram.counts) == (["0", "1"], [1, 3])
    assert [(rate.task_label, rate.pass_rate, rate.n, rate.row) for rate in agent.pass_rates] == [
        ("0", 0.5, 2, 0),
        ("1", 1.0, 2, 2),
    ]
    assert agent.tokens == TokenUsage(n_known=4, input_total=40, output_total=22, output_max=6)
    assert agent.finish_reasons == {"completed": 4}


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_of_right_and_wrong_the_one_that_never_came_is_counted_as_zero(of_run, reward):
    [agent] = of_run([[reward], [reward]]).agents
    assert agent.histogram.labels == ["0", "1"]
    assert agent.histogram.counts == ([2, 0] if reward == 0 else [0, 2])


def test_several_agents_are_shown_together_and_apart(write, opened, rollout):
    rows = [rollout(0, agent="a", tools=("search",)), rollout(1, reward=0.0, agent="b", tools=("search", "submit"))]
    report = make_overview(opened(write("r.jsonl", rows)))
    assert [(agent.agent, agent.mean_reward, agent.metrics[0].n_scored) for agent in report.agents] == [
        (ALL_AGENTS, 0.5, 2),
        ("a", 1.0, 1),
        ("b", 0.0, 1),
    ]
    assert report.agents[0].tools == {"search": 2, "submit": 1}


def test_failures_are_counted_by_kind_from_both_files(write, opened, rollout, failed):
    rows = [rollout(0), rollout(1, reward=0.0, _ng_failure_class="judge_failed", _ng_failure_judge_error="no verdict")]
    path = write("r.jsonl", rows)
    write("r_failures.jsonl", [failed(0), failed(2, message="deadline"), failed(3, kind="verifier")])
    index = opened(path)
    with open_failures(index) as failures:
        failures.wait(300)
        report = make_overview(index, failures)
    found = {one.kind: (one.count, one.n_unresolved, one.examples, one.in_failures_file) for one in report.failures}
    assert found == {
        "timeout": (2, 1, ["too late", "deadline"], True),
        "judge_failed": (1, 1, ["no verdict"], False),
        "verifier": (1, 1, ["too late"], True),
    }
    assert (report.n_failed, report.n_scored) == (3, 1), "task 0 has a reward"


def test_what_a_stopped_run_canceled_was_not_run_and_has_not_failed(write, opened, rollout, failed):
    index = opened(write("r.jsonl", [rollout(0), rollout(1)]))
    canceled = [failed(task, kind="cancelled") for task in (1, 2, 3)]
    failures = opened(write("r_failures.jsonl", [*canceled, failed(3)]))
    overview = make_overview(index, failures)
    assert (overview.n_scored, overview.n_failed, overview.n_not_run) == (2, 1, 1)
    assert [one.kind for one in overview.failures] == ["timeout"]
    assert read_rollout(failures.read_row(0)).outcome == "not run"
    assert "not run" in render_rollout(read_rollout(failures.read_row(0)))
    assert "failed" not in render_rollout(read_rollout(failures.read_row(0)))


def test_a_run_without_failures_has_no_failures_file(write, opened, rollout):
    assert open_failures(opened(write("r.jsonl", [rollout()]))) is None


def test_metrics_are_read_from_the_file_that_the_run_wrote(write, opened, rollout, tmp_path, monkeypatch):
    path = write("r.jsonl", [rollout(task, attempt, task % 2) for task in range(3) for attempt in range(2)])
    metrics_file = write_aggregates(RunPaths.of(path).aggregate_metrics, aggregate_files([path]))
    metrics_file.write_bytes(metrics_file.read_bytes().replace(b'"estimate":0.3333333333333333', b'"estimate":0.123'))
    monkeypatch.setattr(overview, "compute_headline", None)
    report = make_overview(opened(path))
    assert report.agents[0].mean_reward == 0.123
    assert report.notes == ["These metrics are those of r_aggregate_metrics.json, which the run wrote."]


def test_metrics_are_computed_and_said_to_be_where_the_file_covers_other_rollouts(write, opened, rollout):
    path = write("r.jsonl", [rollout(0)])
    metrics_file = write_aggregates(RunPaths.of(path).aggregate_metrics, aggregate_files([path]))
    write("r.jsonl", [rollout(0), rollout(1, reward=0.0)])
    os.utime(metrics_file, ns=(1 << 62, 1 << 62))  # newer than the rollouts, and still of fewer
    report = make_overview(opened(path))
    assert report.agents[0].mean_reward == 0.5
    assert report.notes == [COMPUTED_HERE]


def test_an_open_file_shows_the_metrics_that_its_run_writes_in_the_end(write, rollout):
    path = write("r.jsonl", [rollout(0)])
    with open_files([path]) as files:
        [file] = files.files
        assert file.index.wait(300)
        assert file.get_overview().notes == [COMPUTED_HERE]
        write_aggregates(RunPaths.of(path).aggregate_metrics, aggregate_files([path]))
        file._due_s = 0.0
        [note] = file.get_overview().notes
    assert "which the run wrote" in note


def test_of_agents_together_metrics_are_computed_where_the_run_wrote_those_of_each(write, opened, rollout):
    path = write("r.jsonl", [rollout(0, agent="a"), rollout(1, reward=0.0, agent="b")])
    write_aggregates(RunPaths.of(path).aggregate_metrics, aggregate_files([path]))
    report = make_overview(opened(path))
    assert [agent.mean_reward for agent in report.agents] == [0.5, 1.0, 0.0]
    [note] = report.notes
    assert "those of all are computed here" in note


def test_the_metrics_that_the_servers_gave_are_shown_too(write, opened, rollout, tmp_path):
    path = write("r.jsonl", [rollout()])
    entry = {"agent_ref": {"name": "a"}, "key_metrics": {"mean/reward": 1.0, "elo": 1200, "note": "text"}}
    beside = tmp_path / "r_aggregate_metrics.json"
    beside.write_bytes(orjson.dumps([entry]))
    [agent] = make_overview(opened(path)).agents
    assert {metric.name: metric.value for metric in agent.metrics}["elo"] == 1200
    os.utime(beside, ns=(0, 0))  # of an earlier run
    assert "elo" not in {metric.name for metric in make_overview(opened(path)).agents[0].metrics}


def test_a_dataset_has_no_metrics(write, opened):
    report = make_overview(opened(write("d.jsonl", [{"responses_create_params": {"input": "q"}}] * 3)))
    assert (report.n_rows, report.n_tasks) == (3, 3)
    assert report.agents[0].metrics == []
    assert report.agents[0].histogram is None


def test_an_empty_file_has_an_overview(write, opened):
    report = make_overview(opened(write("r.jsonl", [])))
    assert (report.n_rows, report.agents, report.points, report.failures) == (0, [], [], [])


def test_points_are_a_bounded_sample_of_the_scored(write, opened, rollout, monkeypatch):
    monkeypatch.setattr(overview, "_POINTS", 10)
    index = opened(write("r.jsonl", [rollout(task, reward=task / 50) for task in range(50)]))
    points = make_overview(index).points
    assert len(points) == 10
    assert points == make_overview(index).points
    assert len({point.reward for point in points}) == 10


def test_fields_beyond_the_limit_are_named(write, opened, rollout):
    fields = {f"field{number}": number for number in range(9)}
    report = make_overview(opened(write("r.jsonl", [rollout(**fields)])))
    assert report.notes == [COMPUTED_HERE, "Only the first 8 numeric fields are measured; left out: field8."]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(0, 100))
def test_an_even_selection_keeps_both_ends(most, size):
    chosen = pick_evenly(range(size), most)
    assert len(chosen) == min(most, size) == len(set(chosen))
    assert size == 0 or {0, size - 1} <= set(chosen)


def test_the_picture_of_a_training_is_shown_with_the_evaluations_beside_it(of_run, tmp_path):
    assert of_run([[1.0]]).learning_curve is None
    (tmp_path / "learning-curve.png").write_bytes(b"\x89PNG\r\n")
    overview = of_run([[1.0]])
    assert overview.learning_curve == b"\x89PNG\r\n"
    assert '<img src="data:image/png;base64,iVBORw0K"' in render_overview(overview)
