# SPDX-License-Identifier: Apache-2.0
"""From input lines to planned rollouts."""

import errno
import hashlib
import itertools
import json
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts import expand as expand_module
from nemo_gym._rollouts.expand import BadRows, ExpandSettings, expand, materialize
from nemo_gym._rollouts.input_lines import read_input
from nemo_gym._rollouts.run_paths import RunFileError, RunPaths
from nemo_gym.errors import ConfigError, GymError

PARAMS = {"input": "hi"}
ROW = {"responses_create_params": PARAMS}


def lines(*rows):
    return list(enumerate((row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows), 1))


def rollouts(*rows, **given_settings):
    return list(expand(lines(*rows), ExpandSettings(**{"agent_name": "ann", **given_settings}), "r.jsonl"))


def keys(rows):
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def complaints(*rows, **given_settings):
    with pytest.raises(BadRows) as raised:
        rollouts(*rows, **given_settings)
    return str(raised.value).split("\n")[1:]


def test_a_row_keeps_its_own_fields_and_gets_agent_and_indices():
    row = {**ROW, "answer": {"deep": [1, None]}, "agent_ref": {"type": "responses_api_agents", "name": "bob"}}
    assert rollouts(row) == [{**row, "_ng_task_index": 0, "_ng_rollout_index": 0}]


def test_a_row_without_an_agent_gets_the_default_one():
    assert [row["agent_ref"] for row in rollouts(ROW, {**ROW, "agent_ref": None})] == [{"name": "ann"}] * 2


def test_repeats_stand_side_by_side():
    assert keys(rollouts({**ROW, "n": 1}, {**ROW, "n": 2}, repeats=2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_identical_lines_are_one_task_whose_rollouts_count_on():
    assert keys(rollouts(ROW, {**ROW, "n": 2}, ROW, repeats=2)) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]


def test_a_given_task_index_is_kept_and_its_rollouts_are_counted():
    given_index = {**ROW, "_ng_task_index": 7}
    assert keys(rollouts(given_index, {**given_index, "n": 1})) == [(7, 0), (7, 1)]


def test_numbers_that_rows_give_themselves_are_not_given_to_others():
    assert keys(rollouts({**ROW, "_ng_task_index": 0}, ROW, {**ROW, "n": 1})) == [(0, 0), (1, 0), (2, 0)]


def test_a_number_that_is_already_taken_by_an_unnumbered_row_is_refused():
    assert complaints(ROW, {**ROW, "_ng_task_index": 0})[0].startswith("r.jsonl: row 2: `_ng_task_index` is already")


def test_repeats_may_differ_by_agent():
    rows = [{**ROW, "agent_ref": {"name": name}} for name in ("a", "b", "c")]
    planned = rollouts(*rows, repeats={"a": 2, "_default": 1, "b": 3})
    assert [row["agent_ref"]["name"] for row in planned] == ["a"] * 2 + ["b"] * 3 + ["c"]


def test_the_limit_counts_lines():
    assert len(rollouts(ROW, ROW, ROW, limit=2, repeats=3)) == 6


def test_overrides_replace_whole_values():
    row = {"responses_create_params": {"input": "hi", "reasoning": {"effort": "low"}, "temperature": 1.0}}
    (planned,) = rollouts(row, overrides={"reasoning": {"summary": "auto"}, "max_output_tokens": 5})
    assert planned["responses_create_params"] == {
        "input": "hi",
        "reasoning": {"summary": "auto"},
        "temperature": 1.0,
        "max_output_tokens": 5,
    }


def test_the_seed_is_the_rollout_index_and_joins_what_is_in_the_extra_body():
    extra = {
        "responses_create_params": {"input": "hi", "metadata": {"k": "v", "extra_body": '{"top_k": 3, "seed": 9}'}}
    }
    planned = rollouts(extra, ROW, repeats=2, add_seed=True)
    metadata = [row["responses_create_params"]["metadata"] for row in planned]
    assert [json.loads(each["extra_body"]) for each in metadata] == [
        {"top_k": 3, "seed": 0},
        {"top_k": 3, "seed": 1},
        {"seed": 0},
        {"seed": 1},
    ]
    assert metadata[0]["k"] == "v"


def test_skills_and_prompt_are_applied_to_every_row():
    def prompt(row):
        return {**row, "responses_create_params": {"input": f"say {row['word']}"}}

    (planned,) = rollouts({"word": "yes"}, prompt=prompt, skills_ref={"path": "s"})
    assert planned["responses_create_params"] == {"input": "say yes"}
    assert planned["skills_ref"] == {"path": "s"}


def test_repeats_of_a_row_can_be_changed_one_by_one():
    first, second = rollouts(ROW, repeats=2)
    first["responses_create_params"]["input"] = first["x"] = "changed"
    assert second["responses_create_params"] == PARAMS
    assert "x" not in second


def test_all_bad_rows_are_told_at_once_by_file_line_range_and_reason():
    bad = b'{"a":'
    found = complaints(ROW, bad, bad, bad, [1], ROW, bad, {"x": 1}, {"responses_create_params": 1})
    assert found[0].startswith("r.jsonl: rows 2–4, 7: not JSON (row 2: ")
    assert found[1:] == [
        "r.jsonl: row 5: not a JSON object",
        "r.jsonl: row 8: no `responses_create_params`",
        "r.jsonl: row 9: `responses_create_params` is not an object",
    ]


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            {"temprature": 1},
            "`responses_create_params.temprature` is not a known setting. Did you mean 'temperature'?",
        ),
        ({"temperature": "hot"}, "`responses_create_params.temperature` must be a number, not 'hot'"),
    ],
)
def test_create_params_for_all_rows_that_are_wrong_are_told_once_and_not_of_the_rows(overrides, complaint):
    with pytest.raises(ConfigError) as caught:
        rollouts(ROW, ROW, overrides=overrides)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("row", "given_settings", "complaint"),
    [
        (ROW, {"agent_name": None}, "no agent"),
        ({**ROW, "agent_ref": {"type": "x"}}, {}, "`agent_ref` has no `name`"),
        (ROW, {"known_agents": ["anna"]}, "no server is called 'ann'. Did you mean 'anna'?"),
        (ROW, {"repeats": {"bob": 1}}, "`num_repeats` lists neither agent 'ann' nor `_default`"),
        ({"responses_create_params": {}}, {}, "`responses_create_params.input`: Field required"),
        ({**ROW, "_ng_task_index": "a"}, {}, "`_ng_task_index` is not a whole number"),
        ({**ROW, "_ng_task_index": True}, {}, "`_ng_task_index` is not a whole number"),
        (
            {"responses_create_params": {"input": "", "metadata": {"extra_body": "[]"}}},
            {"add_seed": True},
            "`metadata.extra_body` is not",
        ),
    ],
)
def test_a_row_that_cannot_be_played_says_why(row, given_settings, complaint):
    assert complaints(row, **given_settings)[0].startswith(f"r.jsonl: row 1: {complaint}")


def test_a_prompt_that_does_not_fit_is_a_reason():
    def prompt(row):
        raise GymError("the prompt asks for 'x'")

    assert complaints(ROW, ROW, prompt=prompt) == ["r.jsonl: rows 1–2: the prompt asks for 'x'"]


def test_the_same_mistake_at_different_places_of_a_conversation_is_one_reason():
    good, bad = {"role": "user", "content": "x"}, {"role": "usr", "content": "x"}
    rows = [{"responses_create_params": {"input": [good] * number + [bad]}} for number in range(3)]
    (only,) = complaints(*rows)
    assert only.startswith("r.jsonl: rows 1–3: `responses_create_params.input")


def test_a_flood_of_bad_rows_stays_readable():
    found = complaints(*itertools.chain.from_iterable((ROW, b"{") for _ in range(1000)))
    assert found[0].startswith("r.jsonl: rows 2, 4, ")
    assert " and 980 more: not JSON" in found[0]
    assert len(found[0]) < 250


def test_many_reasons_are_counted_past_the_first_twenty():
    found = complaints(*({**ROW, "agent_ref": {"name": f"agent {number}"}} for number in range(50)), known_agents=["x"])
    assert len(found) == 21
    assert found[-1] == "r.jsonl: 30 more rows for other reasons"


def plan(tmp_path, *rows, **given_settings):
    paths = RunPaths.of(tmp_path / "out" / "r.jsonl")
    given = ExpandSettings(**{"agent_name": "ann", **given_settings})
    return paths, lambda: materialize(lines(*rows), given, "in.jsonl", paths)


def test_the_plan_is_a_draft_until_the_run_begins(tmp_path):
    paths, write = plan(tmp_path, {**ROW, "agent_ref": {"name": "bob"}}, ROW, ROW, repeats=2)
    written = write()
    assert (written.rollouts, written.tasks, written.warnings) == (6, 2, ())
    assert (written.agents, dict(written.per_task)) == ({"bob": 2, "ann": 4}, {0: 2, 1: 4})
    assert written.sha256 == hashlib.sha256(paths.materialized_draft.read_bytes()).hexdigest()
    assert len(list(read_input(paths.materialized_draft))) == 6
    assert not paths.materialized.exists()


def test_bad_rows_leave_no_file_behind_and_do_not_touch_those_of_the_run_before(tmp_path):
    paths, write = plan(tmp_path, ROW, b"no")
    paths.materialized.parent.mkdir()
    paths.materialized.write_text("old")
    with pytest.raises(BadRows, match=r"1 of 2 rows of in\.jsonl cannot be run; nothing was started"):
        write()
    assert [path.name for path in paths.output.parent.iterdir()] == ["r_materialized_inputs.jsonl"]
    assert paths.materialized.read_text() == "old"


def test_an_empty_input_is_an_error(tmp_path):
    paths, write = plan(tmp_path)
    with pytest.raises(BadRows, match="holds no rows"):
        write()
    assert not paths.materialized_draft.exists()


def test_a_full_disk_leaves_no_draft_and_says_so(tmp_path, monkeypatch):
    paths, write = plan(tmp_path, ROW)

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(expand_module.os, "fsync", full)
    with pytest.raises(RunFileError, match="the disk is full"):
        write()
    assert not paths.materialized_draft.exists()


def test_repeats_for_agents_that_no_row_uses_are_warned_about(tmp_path):
    _, write = plan(tmp_path, ROW, repeats={"an": 3, "_default": 1})
    assert write().warnings == ("num_repeats names agent 'an', which no row uses. Did you mean 'ann'?",)


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    def peak(count):
        many = ((number, b'{"responses_create_params":{"input":"%d"}}' % number) for number in range(count))
        tracemalloc.start()
        materialize(many, ExpandSettings(agent_name="a"), "x", RunPaths.of(tmp_path / "r.jsonl"))
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(10)
    assert (peak(12_000) - peak(2_000)) / 10_000 < 500


@given(
    lines_=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2) | st.none()), max_size=12),
    repeats=st.integers(1, 3),
    limit=st.integers(1, 12) | st.none(),
)
@settings(max_examples=100, deadline=None)
def test_every_line_gives_its_repeats_and_no_key_twice(lines_, repeats, limit):
    rows = [{**ROW, "n": n} | ({} if task is None else {"_ng_task_index": 1000 + task}) for n, task in lines_]
    planned = rollouts(*rows, repeats=repeats, limit=limit)
    taken = rows[:limit]
    assert [row["n"] for row in planned] == [row["n"] for row in taken for _ in range(repeats)]
    assert len(set(keys(planned))) == len(planned)
    per_task = {task: sorted(r for t, r in keys(planned) if t == task) for task, _ in keys(planned)}
    assert all(found == list(range(len(found))) for found in per_task.values())
    assert all(
        row["_ng_task_index"] == given_row["_ng_task_index"]
        for row, given_row in zip(planned[::repeats], taken, strict=True)
        if "_ng_task_index" in given_row
    )
