# SPDX-License-Identifier: Apache-2.0
"""An export accounts for every rollout, writes whole files or none, and holds no more than a group in memory."""

import re
import tracemalloc

import pyarrow.parquet
import pytest

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._training.alignment import join_turns
from nemo_gym._training.export import FORMATS, export_rollouts
from nemo_gym._training.handover import hand_over
from nemo_gym._training.record import TrainableRollout
from nemo_gym._training.selection import Selection
from tests.training.rollout_rows import ANSWER, CALL, OUTPUT, PROMPT, make_failure, make_row, read_records, write_rows

TEXT_FORMATS = ("sft", "dpo", "atif")


@pytest.fixture
def rollouts(tmp_path):
    """Two tasks: one with rewards that differ, a failure and a rollout that is masked; one that always passes."""
    rows = [make_row(0, 0, 1.0), make_row(1, 0, 1.0), make_row(0, 1, 0.0), make_row(1, 1, 1.0)]
    rows += [make_row(0, 2, 0.5, mask_sample=True), make_row(0, 3, 0.25, with_tokens=False)]
    write_rows(tmp_path / "rollouts_failures.jsonl", [make_failure(0, 4)])
    return write_rows(tmp_path / "rollouts.jsonl", rows)


@pytest.mark.parametrize("name", FORMATS)
def test_every_rollout_is_accounted_for(name, rollouts, tmp_path):
    summary = export_rollouts([rollouts], name, tmp_path / "out.jsonl")
    facts = summary.as_json()
    left_out = sum(facts["failed"].values()) + sum(facts["invalid"].values()) + sum(facts["filtered"].values())
    assert facts["rollouts"] == 7 == facts["exported"] + left_out + facts["without_tokens"]
    assert (facts["failed"], facts["invalid"]) == ({"timeout": 1}, {"mask_sample": 1})
    assert set(facts["invalid_examples"]) == {"mask_sample"}
    assert re.fullmatch(r"task \d+, rollout \d+", facts["invalid_examples"]["mask_sample"])
    assert facts["without_tokens"] == (0 if name in TEXT_FORMATS else 1)
    assert facts["records"] == len(read_records(tmp_path / "out.jsonl"))


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in TEXT_FORMATS])
def test_a_sample_says_how_large_its_group_is_and_how_many_of_it_failed(name, rollouts, tmp_path):
    export_rollouts([rollouts], name, tmp_path / "out.jsonl")
    found = [*iter_numbers(read_records(tmp_path / "out.jsonl"), "group_size", "group_scored", "group_failed")]
    assert set(found) == {(5, 2, 1), (2, 2, 0)}


def iter_numbers(value, *names):
    if isinstance(value, dict):
        if set(names) <= set(value):
            yield tuple(value[name] for name in names)
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from iter_numbers(one, *names)


@pytest.mark.parametrize(
    ("selection", "exported"),
    [
        (Selection(keep_groups="mixed"), [(0, 0), (0, 1)]),
        (Selection(min_reward=0.5), [(0, 0), (1, 0), (1, 1)]),
        (Selection(max_pass_rate=0.9), [(0, 0), (0, 1)]),
        (Selection(min_pass_rate=0.9), [(1, 0), (1, 1)]),
        (Selection(min_pass_rate=0.9, pass_threshold=0.0), [(0, 0), (0, 1), (1, 0), (1, 1)]),
    ],
)
def test_filters_choose_rollouts_and_groups(selection, exported, rollouts, tmp_path):
    summary = export_rollouts([rollouts], "trl", tmp_path / "out.jsonl", selection=selection)
    records = read_records(tmp_path / "out.jsonl")
    assert sorted((one["task_index"], one["rollout_index"]) for one in records) == exported
    assert summary.filtered.total() == 4 - len(exported)


def test_group_filters_work_for_conversations_too(rollouts, tmp_path):
    export_rollouts([rollouts], "sft", tmp_path / "out.jsonl", selection=Selection(keep_groups="mixed"))
    assert {one["task_index"] for one in read_records(tmp_path / "out.jsonl")} == {0}


def test_a_forked_rollout_becomes_a_sample_for_each_branch(tmp_path):
    forked = make_row(0, 0, 1.0, history=[1, 2, 99])
    file = write_rows(tmp_path / "r.jsonl", [forked])
    summary = export_rollouts([file], "verl", tmp_path / "out.jsonl")
    first, second = read_records(tmp_path / "out.jsonl")
    assert summary.as_json()["drift"] == {"forked": 1}
    assert (summary.exported, summary.records) == (1, 2)
    assert (first["prompt_ids"], first["response_ids"]) == (PROMPT, CALL)
    assert (second["prompt_ids"], second["response_ids"]) == ([1, 2, 99], ANSWER)
    assert first["reward_score"] == second["reward_score"] == 1.0


def test_with_a_tokenizer_the_generated_ids_are_put_back(tmp_path):
    retokenized = make_row(0, 0, 1.0, history=[1, 2, 3, 45, 6])
    file = write_rows(tmp_path / "r.jsonl", [retokenized])
    texts = {4: "4", 5: "5", 45: "45"}
    summary = export_rollouts(
        [file], "trl", tmp_path / "out.jsonl", decode=lambda ids: "".join(texts.get(one, f"<{one}>") for one in ids)
    )
    [record] = read_records(tmp_path / "out.jsonl")
    assert summary.drift == {"realigned": 1}
    assert record["completion_ids"] == CALL + OUTPUT + ANSWER


def test_pairs_are_of_one_task_differ_by_the_margin_and_use_each_rollout_once(tmp_path):
    rewards = [0.0, 1.0, 0.5, 0.4, 1.0]
    rows = [make_row(0, number, reward, answer=str(reward)) for number, reward in enumerate(rewards)]
    rows += [make_row(1, 0, 1.0), make_row(1, 1, 1.0)]
    file = write_rows(tmp_path / "r.jsonl", rows)
    summary = export_rollouts([file], "dpo", tmp_path / "out.jsonl", margin=0.6)
    pairs = [(one["chosen_reward"], one["rejected_reward"]) for one in read_records(tmp_path / "out.jsonl")]
    assert pairs == [(1.0, 0.0), (1.0, 0.4)]
    assert summary.filtered == {"no partner for a pair": 3}


def test_the_least_reward_of_a_pair_is_that_of_the_chosen_one(tmp_path):
    file = write_rows(tmp_path / "r.jsonl", [make_row(0, 0, 0.0), make_row(0, 1, 0.5)])
    assert export_rollouts([file], "dpo", tmp_path / "a", selection=Selection(min_reward=0.5)).records == 1
    assert export_rollouts([file], "dpo", tmp_path / "b", selection=Selection(min_reward=0.6)).records == 0


def test_a_pair_that_was_asked_different_things_is_no_pair(tmp_path):
    other = make_row(0, 1, 0.0)
    other["responses_create_params"]["input"][1]["content"] = "Something else?"
    file = write_rows(tmp_path / "r.jsonl", [make_row(0, 0, 1.0), other])
    summary = export_rollouts([file], "dpo", tmp_path / "out.jsonl")
    assert summary.invalid == {"rollouts of one task with different prompts": 2}


def test_what_a_format_cannot_express_is_counted_and_the_rest_of_the_group_is_written(tmp_path):
    strange = make_row(0, 1, 0.0)
    strange["response"]["output"].append({"type": "computer_call"})
    file = write_rows(tmp_path / "r.jsonl", [make_row(0, 0), strange])
    summary = export_rollouts([file], "art", tmp_path / "out.jsonl")
    [group] = read_records(tmp_path / "out.jsonl")
    assert len(group["trajectories"]) == 1
    assert summary.invalid == {"an item of type 'computer_call', which chat cannot express": 1}
    # NeMo RL reads nothing but the tokens, which are there.
    assert export_rollouts([file], "nemo-rl", tmp_path / "rows.jsonl").exported == 2


def test_nothing_is_written_where_there_is_nothing_to_export(tmp_path):
    file = write_rows(tmp_path / "r.jsonl", [make_row(0, 0, with_tokens=False)])
    summary = export_rollouts([file], "trl", tmp_path / "out.jsonl")
    assert (summary.records, summary.without_tokens) == (0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def test_a_bad_line_leaves_no_trace_of_an_output(rollouts, tmp_path):
    rollouts.write_bytes(rollouts.read_bytes() + b"{]\n")
    with pytest.raises(ValueError, match=r"rollouts\.jsonl:7"):
        export_rollouts([rollouts], "sft", tmp_path / "out.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rollouts.jsonl", "rollouts_failures.jsonl"]


def test_an_output_that_exists_is_kept_unless_it_may_be_replaced(rollouts, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    with pytest.raises(ResultsError, match="--overwrite"):
        export_rollouts([rollouts], "trl", out)
    assert out.read_text() == "mine"
    assert export_rollouts([rollouts], "trl", out, overwrite=True).records == len(read_records(out))


@pytest.mark.parametrize(
    ("name", "output", "said"),
    [
        ("nemo_rl", "out.jsonl", "Did you mean 'nemo-rl'"),
        ("trl", "rollouts.jsonl", "one of the rollouts files"),
        ("trl", ".", "a folder"),
        ("trl", "out.parquet", "not as parquet"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_hint(name, output, said, rollouts, tmp_path):
    with pytest.raises(ResultsError, match=said) as caught:
        export_rollouts([rollouts], name, tmp_path / output)
    assert "hint:" in str(caught.value)


def test_verl_has_the_same_rows_as_parquet(rollouts, tmp_path):
    export_rollouts([rollouts], "verl", tmp_path / "out.jsonl")
    export_rollouts([rollouts], "verl", tmp_path / "out.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    for row in rows:
        components = row["extra_fields"]["reward_extra_info"]
        row["extra_fields"]["reward_extra_info"] = {one["name"]: one["value"] for one in components}
    assert rows == read_records(tmp_path / "out.jsonl")


def test_the_canonical_record_is_read_back(rollouts, tmp_path):
    export_rollouts([rollouts], "trajectories", tmp_path / "out.jsonl")
    for record in read_records(tmp_path / "out.jsonl"):
        rollout = TrainableRollout.from_json(record)
        assert rollout.to_json() == record
        assert rollout.branches == join_turns(rollout.turns)


@pytest.mark.parametrize("name", ["trl", "sft", "skyrl", "dpo"])
def test_memory_does_not_grow_with_the_number_of_rows(name, tmp_path):
    """What is kept of a group is a few numbers: far less than its rows."""

    def measure(n_tasks):
        file = tmp_path / f"{name}{n_tasks}.jsonl"
        write_rows(file, (make_row(task, number, number % 2) for number in range(4) for task in range(n_tasks)))
        tracemalloc.start()
        export_rollouts([file], name, tmp_path / f"{name}{n_tasks}.out")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, file.stat().st_size

    measure(2)  # what is loaded on first use
    (few, few_bytes), (many, many_bytes) = measure(25), measure(250)
    assert many - few < 0.15 * (many_bytes - few_bytes)


# --- rows whose tokens were handed over to a trainer ------------------------------------------------------------------


def spell(ids):
    """Every token is a letter, and 45 is another spelling of those that the first turn writes."""
    return "".join("ef" if one == 45 else chr(ord("a") + one) for one in ids)


@pytest.mark.parametrize("history", [[*PROMPT, 45, *OUTPUT], [*PROMPT, 0, *OUTPUT]], ids=["realigned", "forked"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_row_that_was_handed_over_is_exported_as_it_was_played(name, history, tmp_path):
    rows = [make_row(0, 0, 1.0, history=history), make_row(0, 1, 0.0, history=history)]
    assert spell(CALL) == "ef"
    played = write_rows(tmp_path / "played.jsonl", rows)
    for row in rows:
        hand_over(row, spell)
        assert "_ng_token_drift" in row
    handed_over = write_rows(tmp_path / "handed_over.jsonl", rows)
    expected = export_rollouts([played], name, tmp_path / "expected.jsonl", decode=spell)
    summary = export_rollouts([handed_over], name, tmp_path / "actual.jsonl")
    assert summary.exported == 2
    assert summary.drift == expected.drift
    assert read_records(tmp_path / "actual.jsonl") == read_records(tmp_path / "expected.jsonl")
