# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from nemo_gym._rollouts.run_manifest import Counts, GitState, InputIdentity, Manifest, write_manifest
from nemo_gym._viewer.files.file_queries import Browser
from nemo_gym._viewer.files.run_companions import RunFiles, describe_run, label_files

_KEY = "sk-this-must-never-be-seen"


def manifest(**changes) -> Manifest:
    config = {
        "policy_model": {"responses_api_models": {"openai_model": {"openai_model": "gpt-x", "openai_api_key": _KEY}}},
        "sums": {"resources_servers": {"sums": {"domain": "math"}}},
        "sums_agent": {"responses_api_agents": {"simple_agent": {"max_steps": 5}}},
        "policy_base_url": f"https://me:{_KEY}@example.com",
        "num_samples_in_parallel": 8,
    }
    given = {
        "counts": Counts(requested=10, scored=9, failed=1),
        "input": InputIdentity(path="/data/tasks.jsonl", size_bytes=1, sha256="ab" * 32),
        "settings": {"num_repeats": 4, "limit": None, "responses_create_params": {"temperature": 0.7}, "api_key": _KEY},
        "config": config,
        "status": "finished",
        "started_at": "2026-11-16T14:50:24.316+00:00",
        "ended_at": "2026-11-16T14:51:11.127+00:00",
        "git": GitState(commit="c0ffee" * 6, dirty=True),
    }
    return Manifest(**given | changes)


@pytest.fixture
def run(write, opened, rollout):
    """A run of two tasks, twice each, whose tasks stand in the plan only."""
    tasks = [
        {"_ng_task_index": task, "_ng_rollout_index": number, "expected_answer": str(task), "category": "sums"}
        | {"responses_create_params": {"input": [{"role": "user", "content": f"question {task}"}]}}
        for task in range(2)
        for number in range(2)
    ]
    write("r_materialized_inputs.jsonl", tasks)
    index = opened(write("r.jsonl", [rollout(1, 1), rollout(0, 0), rollout(0, 1), rollout(1, 0)]))
    files = RunFiles(index)
    yield index, files
    files.close()


def test_a_row_finds_the_task_that_it_was_played_from(run):
    index, files = run
    assert [files.read_planned(row)["expected_answer"] for row in range(index.n_rows)] == ["1", "0", "0", "1"]


def test_a_failures_file_finds_the_plan_of_its_run(run, write, opened, failed):
    files = RunFiles(opened(write("r_failures.jsonl", [failed(1)])))
    assert files.read_planned(0)["expected_answer"] == "1"
    files.close()


def test_a_file_alone_has_neither_plan_nor_description(write, opened, rollout):
    files = RunFiles(opened(write("alone.jsonl", [rollout()])))
    assert (files.read_planned(0), files.describe(), files.n_planned) == (None, None, 0)


def test_the_list_shows_target_and_fields_of_the_task(run):
    index, files = run
    browser = Browser(index, files)
    first = browser.read_page(browser.find_rows(), 0).items[0].preview
    assert (first.target, first.fields["category"]) == ("1", "sums")
    assert {"category", "expected_answer"} <= set(browser.list_choices().columns)


def test_the_last_user_message_is_previewed_not_the_first_example(write, opened, rollout):
    row = rollout()
    turns = [("user", "an example"), ("assistant", "its answer"), ("user", "the question")]
    row["responses_create_params"]["input"] = [{"role": role, "content": text} for role, text in turns]
    browser = Browser(opened(write("r.jsonl", [row])))
    assert browser.read_page(browser.find_rows(), 0).items[0].preview.asked == "the question"


def test_a_run_is_described_in_a_few_lines(run, tmp_path):
    _, files = run
    write_manifest(tmp_path / "r_run.json", manifest())
    described = files.describe()
    assert described.headline == "gpt-x (openai_model) · sums · 2026-11-16 14:50 UTC"
    facts = dict(described.facts)
    assert facts["Started"] == "2026-11-16 14:50 UTC, took 47 s"
    assert facts["Outcome"] == "finished: 9 of 10 scored, 1 failed"
    assert facts["Settings"] == "repeats 4, temperature 0.7, 8 in parallel"
    assert facts["Git"] == "c0ffeec0ff, with uncommitted changes"
    assert facts["Versions"].startswith("nemo_gym ")


def test_no_secret_is_in_a_description_even_if_the_manifest_holds_one():
    described = describe_run(manifest())
    assert _KEY not in json.dumps([described.headline, described.facts, described.config])
    assert described.config["sums_agent"]["responses_api_agents"]["simple_agent"]["max_steps"] == 5


def test_the_name_under_which_a_model_answered_is_used_where_the_config_has_none():
    config = {"policy_model": {"responses_api_models": {"local_model": {"entrypoint": "app.py"}}}}
    assert describe_run(manifest(config=config), "SmolLM2").facts[0] == ("Model", "SmolLM2 (local_model)")


def test_a_manifest_that_cannot_be_read_is_left_out(run, tmp_path):
    (tmp_path / "r_run.json").write_text("{")
    assert run[1].describe() is None


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["a/r.jsonl"], ["r.jsonl"]),
        (["a/r.jsonl", "b/s.jsonl"], ["r.jsonl", "s.jsonl"]),
        (["a/r.jsonl", "b/r.jsonl", "b/s.jsonl"], ["a/r.jsonl", "b/r.jsonl", "s.jsonl"]),
        (["a/run/r.jsonl", "b/run/r.jsonl"], ["a/run/r.jsonl", "b/run/r.jsonl"]),
        (["a/r.jsonl", "a/r.jsonl"], ["r.jsonl", "r.jsonl"]),
    ],
)
def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path, paths, labels):
    assert label_files([tmp_path / path for path in paths]) == labels
