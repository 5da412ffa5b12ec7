# SPDX-License-Identifier: Apache-2.0
"""How many scored rollouts met a crashed tool, and how many were cut off."""

import orjson

from nemo_gym._results.aggregate import aggregate_files, write_aggregates
from nemo_gym._results.incidents import Incidents
from nemo_gym._rollouts.manifest import Counts
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym.cli.eval.results import show


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
    assert incidents.lines(5) == [
        "2 of 5 rollouts met a crashed tool: look ×2 (500: boom), go ×1 (502: boom); "
        "`--fail-on-tool-error` makes them failures",
        "3 of 5 rollouts were cut off: 2 by max_steps, 1 by length",
    ]


def test_a_run_without_incidents_has_no_line_of_them():
    assert counted({"reward": 1.0}).lines(1) == []


def test_a_message_of_many_lines_is_told_in_one():
    [line] = counted({"_ng_tool_errors": [crash("look", "a\nb" + "c" * 500)]}).lines(1)
    assert "a bccc" in line
    assert len(line) < 300


def test_what_somebody_else_wrote_under_the_key_is_no_reason_to_fail():
    assert counted({"_ng_tool_errors": [{"tool": 1}, "x"]}, {"_ng_tool_errors": 7}).lines(2) == []


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
