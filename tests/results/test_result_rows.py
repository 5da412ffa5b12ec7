# SPDX-License-Identifier: Apache-2.0
"""Reading rollouts files."""

import logging

import orjson
import pytest

from nemo_gym._results.aggregate_files import write_aggregates
from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.result_rows import (
    Incidents,
    expand_globs,
    format_scored,
    read_results,
    read_reward,
    read_rollouts,
    strip_row,
)
from nemo_gym._rollouts.run_manifest import Counts
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.jsonl_files import JsonlError
from nemo_gym.cli.eval.results import show
from tests.support.measured import aggregate_files


def test_a_row_is_stripped_of_everything_large_but_the_token_counts(write, result):
    path = write("r.jsonl", [result(3, 1, 0.5, extra="x", ng_trajectory={"turns": []}, _ng_token_capture=[1])])
    [line] = read_results(path)
    assert (line.key, str(line.place)) == ((3, 1), f"{path}:1")
    assert strip_row(line.row) == {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"name": "a"},
        "reward": 0.5,
        "extra": "x",
        "response": {"usage": {"input_tokens": 10, "output_tokens": 2}},
    }


def test_a_torn_last_line_is_skipped_with_a_notice(write, result, caplog):
    path = write("r.jsonl", [result(0, 0, 1.0), b'{"_ng_task_index": 1, "rew'], end=b"")
    with caplog.at_level(logging.WARNING):
        assert [row.key for row in read_results(path)] == [(0, 0)]
    assert f"{path}:2: the last line was cut off" in caplog.text


def test_a_last_line_that_only_lacks_its_newline_counts(write, result):
    path = write("r.jsonl", [result(0, 0, 1.0), result(1, 0, 1.0)], end=b"")
    assert [row.key for row in read_results(path)] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("bad", [b'{"reward": NaN}', b"[1]", b"{"])
def test_a_bad_line_in_the_middle_is_an_error_with_file_and_line(write, result, bad):
    path = write("r.jsonl", [result(0, 0, 1.0), b"", bad, result(1, 0, 1.0)])
    with pytest.raises(JsonlError, match=f"{path}:3: "):
        list(read_results(path))


@pytest.mark.parametrize("index", ["7", -1, 1.5, True])
def test_an_index_that_is_none_is_an_error_with_file_and_line(write, result, index):
    path = write("r.jsonl", [result(0, 0, 1.0) | {"_ng_task_index": index}])
    with pytest.raises(ResultsError, match=f"{path}:1: '_ng_task_index' is {index!r}"):
        list(read_results(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"nowhere\.jsonl' cannot be read: No such file"):
        list(read_results(tmp_path / "nowhere.jsonl"))


def test_a_comma_list_of_patterns_gives_every_file_once(write, tmp_path):
    for name in ("a.jsonl", "b.jsonl", "c.txt"):
        write(name, [])
    found = expand_globs(f"{tmp_path}/b.jsonl, {tmp_path}/*.jsonl,")
    assert [path.name for path in found] == ["b.jsonl", "a.jsonl"]


def test_wildcards_leave_out_the_other_files_of_a_run(write, tmp_path):
    for name in ("r.jsonl", "r_failures.jsonl", "r_materialized_inputs.jsonl", "r_reward_profiling.jsonl"):
        write(name, [])
    assert [path.name for path in expand_globs(f"{tmp_path}/*.jsonl")] == ["r.jsonl"]
    assert [path.name for path in expand_globs(f"{tmp_path}/r_failures.jsonl")] == ["r_failures.jsonl"]


@pytest.mark.parametrize("pattern", ["nothing-*.jsonl", ""])
def test_no_match_is_an_error(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ResultsError, match="no rollouts file"):
        expand_globs(pattern)


def test_only_a_number_without_a_failure_is_a_score(result):
    assert read_reward(result(0, 0, 1)) == 1.0
    assert read_reward(result(0, 0, True)) == 1.0
    assert read_reward(result(0, 0, None)) is None
    assert read_reward(result(0, 0, "1")) is None
    assert read_reward(result(0, 0, 0.0, _ng_failure_class="judge_failed")) is None


def test_a_count_says_of_how_many():
    assert format_scored(3, 4) == "3 of 4"
    assert format_scored(3, None) == "3 of ?"


def test_rollouts_are_grouped_by_agent_and_sorted_by_key(write, result):
    path = write("r.jsonl", [result(1, 0, 1.0, "b"), result(0, 1, 0.0), result(0, 0, 1.0)])
    agents = read_rollouts([path])
    assert [(agent.agent, [rollout.key for rollout in agent.rollouts]) for agent in agents] == [
        ("a", [(0, 0), (0, 1)]),
        ("b", [(1, 0)]),
    ]


def test_a_row_without_a_score_is_no_zero(write, result, caplog):
    path = write("r.jsonl", [result(0, 0, 1.0), result(0, 1, None), result(0, 2, 0.0, _ng_failure_class="x")])
    with caplog.at_level(logging.WARNING):
        [agent] = read_rollouts([path])
    assert ([rollout.key for rollout in agent.rollouts], agent.n_unscored) == ([(0, 0)], 2)
    assert f"2 rows hold no score and are not counted; the first is {path}:2" in caplog.text


def test_a_rollout_in_two_files_is_an_error_that_names_both(write, result):
    paths = [write("one.jsonl", [result(0, 0, 1.0)]), write("two.jsonl", [result(0, 0, 0.0)])]
    with pytest.raises(ResultsError, match=r"one.jsonl:1 and .*two.jsonl:1"):
        read_rollouts(paths)


def test_answers_and_rows_are_kept_where_asked_for(write, result):
    path = write("r.jsonl", [result(0, 0, 1.0, "a", got="x"), result(1, 0, 1.0, "b", got="y")])
    a, b = read_rollouts([path], answer_keys={"a": "got"}, keep_rows_of={"b"})
    assert (a.rollouts[0].answer, a.rows) == ("x", [])
    assert b.rollouts[0].answer is None
    assert [row["got"] for _, row in b.rows] == ["y"]


# --- incidents --------------------------------------------------------------------------------------------------------


def crash(tool, message="boom", status=500):
    return {"tool": tool, "status": status, "message": message}


def counted(*rows):
    incidents = Incidents()
    for row in rows:
        incidents.add(row)
    return incidents


def test_rollouts_are_counted_and_not_calls():
    incidents = counted(
        {"_ng_tool_errors": [crash("look"), crash("look", "again"), crash("go", status=502)]},
        {"_ng_tool_errors": [crash("look", "later")], "_ng_cut_off": "length"},
        {"_ng_cut_off": "max_steps"},
        {"_ng_cut_off": "max_steps"},
        {},
    )
    assert incidents.as_json() == {
        "tool_errors": {
            "rollouts": 2,
            "tools": {
                "look": {"rollouts": 2, "status": 500, "message": "boom"},
                "go": {"rollouts": 1, "status": 502, "message": "boom"},
            },
        },
        "cut_off": {"max_steps": 2, "length": 1},
    }
    assert incidents.describe(5) == [
        "2 of 5 rollouts met a crashed tool: look ×2 (500: boom), go ×1 (502: boom); "
        "`--fail-on-tool-error` makes them failures",
        "3 of 5 rollouts were cut off: 2 by max_steps, 1 by length",
    ]


def test_rollouts_whose_tokens_drifted_are_counted_by_what_became_of_them():
    drifts = [{"_ng_token_drift": {"class": name}} for name in ("forked", "realigned", "realigned")]
    incidents = Incidents.sum([counted(*drifts[:1]), counted(*drifts[1:], {})])
    assert incidents.as_json()["token_drift"] == {"realigned": 2, "forked": 1}
    assert incidents.describe(4) == ["3 of 4 rollouts say `_ng_token_drift`: 2 realigned, 1 forked"]


def test_a_run_without_incidents_has_no_line_of_them():
    assert counted({"reward": 1.0}).describe(1) == []


def test_a_message_of_many_lines_is_told_in_one():
    [line] = counted({"_ng_tool_errors": [crash("look", "a\nb" + "c" * 500)]}).describe(1)
    assert "a bccc" in line
    assert len(line) < 300


def test_what_somebody_else_wrote_under_the_key_is_no_reason_to_fail():
    assert counted({"_ng_tool_errors": [{"tool": 1}, "x"]}, {"_ng_tool_errors": 7}).describe(2) == []


def test_the_summary_and_the_metrics_file_tell_of_all_agents(write, result, tmp_path, capsys):
    rollouts = write(
        "r.jsonl",
        [
            result(0, 0, 1.0, agent="a", _ng_tool_errors=[crash("look")]),
            result(1, 0, 1.0, agent="b", _ng_tool_errors=[crash("look")], _ng_cut_off="max_steps"),
            result(1, 1, None, agent="b", _ng_cut_off="length"),
        ],
    )
    aggregates = aggregate_files([rollouts])
    show(RunPaths.of(rollouts), Counts(requested=2, scored=2), aggregates)
    said = capsys.readouterr().out
    assert "2 of 2 rollouts met a crashed tool: look ×2" in said
    assert "1 of 2 rollouts were cut off: 1 by max_steps" in said
    a, b = orjson.loads(write_aggregates(tmp_path / "m.json", aggregates).read_bytes())
    assert (a["tool_errors"]["rollouts"], a["cut_off"]) == (1, {})
    assert b["cut_off"] == {"max_steps": 1}
