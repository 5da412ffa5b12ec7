# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run from its files."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from nemo_gym._results.aggregate_files import (
    Requested,
    aggregate_rollouts,
    aggregate_with,
    find_task_fields,
    list_metric_rows,
    read_aggregate_heads,
    write_aggregates,
)
from nemo_gym._results.metrics.grouped_metrics import aggregate as aggregate_responses
from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.result_rows import AgentRollouts, read_results
from tests.support.measured import aggregate_files, make_rollout


def test_the_file_has_the_entries_of_the_contract(run, tmp_path):
    rollouts = run("r.jsonl", [[1.0, 0.0], [1.0, 1.0], [0.0, None]])
    path = write_aggregates(tmp_path / "r_aggregate_metrics.json", aggregate_files([rollouts]))
    [entry] = orjson.loads(path.read_bytes())
    assert entry["agent_ref"] == {"name": "a"}
    assert entry["agent_metrics"]["mean/reward"] == 0.6
    assert entry["agent_metrics"]["mean/input_tokens"] == 10.0
    assert entry["key_metrics"] == {"mean/reward": 0.6, "mean/input_tokens": 10.0, "mean/output_tokens": 2.0}
    assert [task["_ng_task_index"] for task in entry["group_level_metrics"]] == [0, 1, 2]
    theirs = aggregate_responses([line.row for line in read_results(rollouts)])
    assert entry["group_level_metrics"] == theirs.tasks
    assert {name: entry["agent_metrics"][name] for name in theirs.agent} == pytest.approx(theirs.agent)


def test_every_agent_has_an_entry(run, result, write, tmp_path):
    rollouts, other = run("r.jsonl", [[1.0, 0.0], [1.0, 1.0]]), write("s.jsonl", [result(7, 0, 1.0, "b")])
    path = write_aggregates(tmp_path / "m.json", aggregate_files([rollouts, other]))
    entries = orjson.loads(path.read_bytes())
    assert [(entry["agent_ref"]["name"], len(entry["group_level_metrics"])) for entry in entries] == [
        ("a", 2),
        ("b", 1),
    ]


@pytest.mark.parametrize("option", [None, 0, orjson.OPT_INDENT_2])
def test_entries_are_read_without_their_tasks_however_they_are_laid_out(run, result, write, tmp_path, option):
    rollouts = [run("r.jsonl", [[1.0, 0.0], [1.0, 1.0]]), write("s.jsonl", [result(7, 0, 1.0, "b")])]
    path = write_aggregates(tmp_path / "m.json", aggregate_files(rollouts))
    entries = orjson.loads(path.read_bytes())
    if option is not None:
        path.write_bytes(orjson.dumps(entries, option=option))
    heads = read_aggregate_heads(path)
    assert all("group_level_metrics" in head for head in heads) is (option is not None)
    for one in (*entries, *heads):
        one.pop("group_level_metrics", None)
    assert heads == entries


def test_without_a_scored_rollout_there_is_nothing_to_say(write, result, tmp_path):
    aggregates = aggregate_files([write("r.jsonl", [result(0, 0, None)])])
    assert orjson.loads(write_aggregates(tmp_path / "m.json", aggregates).read_bytes()) == []


def test_intervals_are_clustered_by_task_and_say_of_how_many_rollouts(run):
    # Task means 0.5, 1, 0: mean 0.5, standard error sqrt(0.25 / 3), t(2) = 4.3027, and Wilson's bounds.
    rollouts = run("r.jsonl", [[1.0, 0.0], [1.0, 1.0], [0.0, None]])
    [aggregate] = aggregate_files([rollouts], requested=Requested.count_beside([rollouts]))
    # Over rollouts, three of five: a task weighs as much as it has rollouts.
    assert aggregate.confidence["mean/reward"]["estimate"] == aggregate.agent_metrics["mean/reward"] == 0.6
    assert aggregate.confidence["mean_over_tasks/reward"] == {
        "estimate": 0.5,
        "ci95": pytest.approx([0.0362, 0.9638], abs=1e-4),
        "stderr": pytest.approx(0.288675, abs=1e-6),
        "n_tasks": 3,
        "n_tasks_left_out": 0,
        "n_scored": 5,
        "n_requested": 6,
    }
    passes = aggregate.confidence["pass@2/accuracy"]
    assert (passes["n_tasks"], passes["n_tasks_left_out"], passes["n_scored"]) == (2, 1, 4)
    assert aggregate.confidence["pass@1[avg-of-2]/accuracy"]["estimate"] == 75.0


def test_what_was_requested_shows_in_the_tasks(run):
    rollouts = run("r.jsonl", [[1.0, None, None]])
    [aggregate] = aggregate_files([rollouts], requested=Requested.count_beside([rollouts]))
    [task] = map(orjson.loads, aggregate.encoded_tasks())
    assert (task["num_rollouts"], task["expected_num_rollouts"], task["missing_num_rollouts"]) == (1, 3, 2)


def test_without_materialized_inputs_nobody_knows_what_was_requested(write, result):
    rollouts = write("alone.jsonl", [result(0, 0, 1.0)])
    assert Requested.count_beside([rollouts]) is None
    [aggregate] = aggregate_files([rollouts])
    assert (aggregate.n_scored, aggregate.n_requested) == (1, None)


def test_an_answer_key_gives_the_majority(write, result):
    rows = [result(0, r, float(answer == "x"), got=answer) for r, answer in enumerate(["x", "x", "y"])]
    [aggregate] = aggregate_files([write("r.jsonl", rows)], answer_keys={"a": "got"})
    assert aggregate.agent_metrics["majority@3/accuracy"] == 100.0
    assert aggregate.confidence["majority@3/accuracy"]["estimate"] == 100.0


async def test_a_server_with_metrics_of_its_own_is_asked(write, result):
    asked = {}

    async def post(agent, rows):
        asked[agent] = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]
        if agent == "a":
            return {"agent_metrics": {"own": 1}, "key_metrics": {"own": 1}, "group_level_metrics": [{"task": 0}]}
        return None

    rows = [result(1, 0, 1.0), result(0, 0, 0.0), result(2, 0, 1.0, "b"), result(3, 0, None)]
    a, b = await aggregate_with(post, [write("r.jsonl", rows)])
    assert asked == {"a": [(0, 0), (1, 0)], "b": [(2, 0)]}
    assert (a.agent_metrics, a.key_metrics, list(a.encoded_tasks())) == ({"own": 1}, {"own": 1}, [b'{"task":0}'])
    assert a.confidence["mean/reward"]["estimate"] == 0.5
    assert b.agent_metrics["mean/reward"] == 1.0


async def test_only_the_agents_named_are_asked_about(write, result):
    asked = []

    async def post(agent, rows):
        asked.append(agent)

    path = write("r.jsonl", [result(0, 0, 1.0, "a"), result(1, 0, 1.0, "b")])
    assert len(await aggregate_with(post, [path], ask_for=["b"])) == 2
    assert asked == ["b"]


def test_a_rollout_in_two_files_is_an_error(write, result):
    with pytest.raises(ResultsError, match="occurs twice"):
        aggregate_files([write("a.jsonl", [result(0, 0, 1.0)]), write("b.jsonl", [result(0, 0, 1.0)])])


@given(lists(lists(integers(0, 1), min_size=1, max_size=4), min_size=2, max_size=10))
@settings(max_examples=50, deadline=None)
def test_every_interval_contains_its_estimate(rewards):
    rollouts = [make_rollout((t, r), {"reward": one}) for t, task in enumerate(rewards) for r, one in enumerate(task)]
    [aggregate] = aggregate_rollouts([AgentRollouts("a", rollouts)])
    for interval in aggregate.confidence.values():
        if interval["ci95"]:
            low, high = interval["ci95"]
            assert low - 1e-9 <= interval["estimate"] <= high + 1e-9


WHOLE = {"estimate": 0.5, "ci95": [0.2, 0.8], "n_scored": 12, "n_requested": 16}


def shown(key_metrics, agent_metrics):
    entry = {"confidence": {"mean/reward": WHOLE}, "key_metrics": key_metrics, "agent_metrics": agent_metrics}
    return {row.name: row.scored_text for row in list_metric_rows(entry)}


def test_a_metric_of_a_category_shows_what_it_rests_on_and_never_the_whole():
    key_metrics = {"mean/reward": 0.5, "mean/reward/easy": 0.7, "hard/pass@1/accuracy": 20.0, "own": 3.0}
    agent_metrics = {**key_metrics, "n_scored/mean/reward/easy": 4, "hard/n_scored": 8}
    assert shown(key_metrics, agent_metrics) == {
        "mean/reward": "12 of 16",
        "mean/reward/easy": "4",
        "hard/pass@1/accuracy": "8",
        "own": "",
    }


def test_what_a_rollout_only_repeats_from_its_task_is_no_metric(write, result):
    tasks = [{"secret": 7, "level": 0, "hint": "x"}, {"secret": 9, "level": 0, "hint": "y"}]
    plan = write("plan.jsonl", [{"_ng_task_index": at, **task} for at, task in enumerate(tasks)])
    # The verifier adds a number of its own, and gives `level` another value.
    scored = [{**result(at, 0, 1.0), **task, "level": at, "steps": 3} for at, task in enumerate(tasks)]
    rollouts = write("r.jsonl", scored)
    assert find_task_fields(plan, rollouts) == ["secret"]
    assert find_task_fields(plan.with_name("absent.jsonl"), rollouts) == []
    [one] = aggregate_files([rollouts])
    assert one.agent_metrics["mean/secret"] == 8
    shown = {row.name for row in list_metric_rows(replace(one, task_fields=("secret",)).head())}
    assert {"mean/reward", "mean/level", "mean/steps"} <= shown
    assert "mean/secret" not in shown
    assert "mean/secret" in {row.name for row in list_metric_rows(one.head())}
