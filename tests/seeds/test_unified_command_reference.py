# SPDX-License-Identifier: Apache-2.0
"""The reference of `gym`: its groups and flags, overrides, generation parameters, resuming, what became of `ng_*`."""

import json
import sys
from importlib.metadata import entry_points

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.cli import legacy
from nemo_gym.cli.command_table import GROUPS
from nemo_gym.cli.legacy import LEGACY
from tests.seeds.items import item
from tests.seeds.serving import EXAMPLES, MODEL, SERVER, Project

AGENT = "example_single_tool_call_simple_agent"

SELECTORS = ["--config", "--benchmark", "--environment", "--resources-server", "--model-type", "--search-dir"]
MODEL_FLAGS = ["--model", "-m", "--model-url", "--model-api-key"]
# What the newer command reference documents: the flags of each command.
FLAGS = {
    "list benchmarks": ["--json"],
    "list environments": ["--json", "--domain", "--kind", "--modality", "--licensing", "--status", "--lifecycle"],
    "list agents": ["--json"],
    "list models": ["--json"],
    "list resources-servers": ["--json"],
    "search": ["--json", "--search-dir"],
    "dataset upload": ["--storage", "--input", "-i", "--name", "--revision", "--split", "--create-pr"],
    "dataset download": [
        *("--storage", "--repo-id", "--name", "--revision", "--artifact", "--output", "-o", "--output-dir", "--split"),
    ],
    "dataset rm": ["--name"],
    "dataset migrate": ["--input", "-i", "--name", "--revision", "--split", "--create-pr"],
    "dataset render": ["--input", "-i", "--prompt-config", "--output", "-o", "--search-dir"],
    "dataset collate": [
        *("--config", "--resources-server", "--model-type", "--search-dir", "--mode", "--output-dir", "--download"),
    ],
    "env init": [
        "--resources-server",
        "--environment",
        "--benchmark",
        "--profile",
        "--reuse-verifier",
        "--reward-range",
    ],
    "env resolve": ["--config", "--search-dir"],
    "env validate": [*SELECTORS, *MODEL_FLAGS, "--kind", "--manifest", "--json"],
    "env packages": ["--resources-server", "--outdated", "--json", "--search-dir"],
    "env test": ["--resources-server", "--search-dir"],
    "env start": [*SELECTORS, *MODEL_FLAGS],
    "env prefetch": SELECTORS,
    "env status": ["--json"],
    "eval prepare": ["--config", "--benchmark", "--search-dir"],
    "eval run": [
        *SELECTORS,
        *MODEL_FLAGS,
        *("--no-serve", "--resume", "--agent", "-a", "--input", "-i", "--output", "-o", "--limit", "--num-repeats"),
        *("--prompt-config", "--concurrency", "--split", "--temperature", "--top-p", "--max-output-tokens"),
        "--disable-aggregation",
    ],
    "eval aggregate": ["--config", "--input-glob", "-i", "--output", "-o"],
    "eval profile": ["--inputs", "--rollouts"],
    "eval reverify": [
        *SELECTORS,
        *("--inputs", "--rollouts", "--output", "-o", "--concurrency", "--limit", "--force", "--overwrite"),
        *("--resume", "--disable-aggregation", "--judge-failed-only", "--append"),
    ],
    "dev test": [],
}

ITEMS = [
    # All commands
    item("one entry point `gym` with groups; `ng` is the same", "test_gym_and_ng_are_one_program"),
    item(
        "every group and every command has `-h` and `--help`",
        "test_help_of_a_group_lists_its_commands",
        "test_help_of_a_command_lists_its_documented_flags",
    ),
    item("every command takes its documented flags", "test_help_of_a_command_lists_its_documented_flags"),
    item(
        "`gym --help` lists groups with what they are for",
        "tests/cli/test_main.py::test_help_lists_groups_and_commands",
    ),
    item(
        "`gym --version` tells version, Python, dependencies and system",
        "tests/seeds/test_legacy_command_reference.py::test_version_tells_everything_and_as_json",
    ),
    item(
        "selectors turn a name into its config file",
        "tests/cli/test_flags.py::test_a_name_stands_for_a_config_file",
    ),
    item(
        "a mistyped name gets the closest one",
        "tests/cli/test_flags.py::test_a_name_that_is_not_there_names_the_file_the_nearest_name_and_where_it_looked",
        "tests/cli/test_mistakes.py::test_a_mistyped_selector",
    ),
    item("`--config PATH` names a file itself", "test_a_config_is_valid_in_both_languages"),
    item(
        "four flags configure the model",
        "test_help_of_a_command_lists_its_documented_flags",
        "test_the_four_model_flags_reach_the_model_server",
    ),
    item(
        "`+key=value` adds and `++key=value` adds or overrides",
        "tests/config/test_overrides.py::test_all_three_forms_set_a_value_whether_or_not_it_exists",
    ),
    item(
        "flags and overrides mix on one line",
        "test_flags_and_overrides_collect_the_same_rollouts",
        "tests/cli/test_flags.py::test_flags_and_overrides_mix_and_the_last_wins",
    ),
    item("overrides without a flag reach the config", "test_an_override_without_a_flag_reaches_the_config"),
    # Discovery
    item(
        "`gym list benchmarks` has domain, agent and repeats",
        "tests/cli/test_listing.py::test_a_table_has_a_title_with_the_count_and_its_columns",
        "tests/cli/test_listing.py::test_the_json_of_benchmarks_keeps_the_old_fields_and_adds_the_new",
    ),
    item(
        "`gym list environments` has short name, domain and description",
        "test_environments_are_listed_by_the_name_that_selects_them",
    ),
    item(
        "a listed name is environments/NAME/config.yaml and fits `--environment`",
        "test_environments_are_listed_by_the_name_that_selects_them",
    ),
    item(
        "`gym list agents` tells composable from self-contained and has the variants",
        "tests/cli/test_listing.py::test_the_json_of_every_list_has_its_documented_fields",
        "tests/authoring/test_components.py::test_an_agent_is_composable_unless_it_brings_its_own_world",
    ),
    item(
        "`gym search` looks at name, agent, resources server, dataset and domain",
        "tests/cli/test_listing.py::test_a_search_looks_at_agent_resources_server_dataset_and_domain",
    ),
    # Datasets
    item(
        "transfers use Hugging Face unless `--storage gitlab`",
        "tests/cli/dataset/test_hf.py::test_an_upload_is_named_after_organization_prefix_domain_and_server",
        "tests/cli/dataset/test_gitlab.py::test_a_dataset_goes_there_and_the_command_that_is_printed_brings_it_back",
    ),
    item("`gym dataset upload` uploads a JSONL file", "tests/cli/dataset/test_hf.py::test_an_upload_as_json"),
    item(
        "`gym dataset download` downloads a dataset",
        "tests/cli/dataset/test_hf.py::test_one_split_is_downloaded_to_a_folder_or_a_file",
    ),
    item(
        "`gym dataset rm` deletes from GitLab and asks first", "tests/cli/dataset/test_gitlab.py::test_only_yes_deletes"
    ),
    item(
        "`gym dataset migrate` uploads and deletes from GitLab",
        "tests/cli/dataset/test_hf.py::test_migrate_uploads_reads_back_and_only_then_deletes",
    ),
    item(
        "`gym dataset collate` validates, collates and measures",
        "tests/cli/dataset/test_collate.py::test_every_step_is_told_in_order",
    ),
    item(
        "collate can download what is missing",
        "tests/cli/dataset/test_hf.py::test_datasets_of_a_config_are_fetched_with_its_token",
    ),
    item("collate writes splits and metrics", "tests/data/test_collate.py::test_every_file_is_written"),
    item(
        "`gym dataset render` fills a prompt into raw rows",
        "tests/cli/dataset/test_fill_prompts.py::test_rows_get_their_prompt",
    ),
    item(
        "render refuses rows that have an input",
        "tests/cli/dataset/test_fill_prompts.py::test_rows_that_do_not_fit_are_named_and_nothing_is_written",
    ),
    item(
        "render keeps the other fields of a row",
        "tests/data/test_render.py::test_rows_get_their_input_and_keep_the_rest",
    ),
    # Environments
    item(
        "`gym env init` makes config, app, tests, README and data",
        "tests/cli/env/test_init.py::test_a_resources_server_has_all_its_files",
    ),
    item(
        "`gym env resolve` prints the merged config",
        "tests/cli/test_main.py::test_resolve_prints_the_config_as_the_servers_see_it_without_secrets",
    ),
    item(
        "secrets are hidden there",
        "tests/cli/env/test_config.py::test_a_block_is_explained_key_by_key_and_secrets_stay_hidden",
        "tests/seeds/test_legacy_command_reference.py::test_the_config_is_dumped_without_its_secrets",
    ),
    item(
        "`gym env validate` starts neither Ray nor a server",
        "tests/cli/env/test_config.py::test_validating_loads_neither_ray_nor_a_web_server",
    ),
    item(
        "it finds missing and malformed config paths",
        "tests/cli/test_mistakes.py::test_a_mistyped_config_path",
        "tests/config/test_config_files.py::test_config_paths_must_be_a_list_of_strings",
    ),
    item("it finds unknown server references", "tests/cli/test_mistakes.py::test_a_mistyped_server_reference"),
    item(
        "it finds `???` that nobody set",
        "tests/cli/test_mistakes.py::test_missing_required_values_of_a_config_are_reported_at_once",
    ),
    item(
        "it finds blocks that break the schema",
        "tests/config/test_server_blocks.py::test_an_almost_server_is_reported_once_with_its_mistakes",
    ),
    item("it exits with 0 if all is well", "test_a_config_is_valid_in_both_languages"),
    item(
        "it exits with 1 and a message without traceback if not",
        "tests/cli/test_main.py::test_a_config_error_is_printed_without_a_traceback",
    ),
    item("no model is needed to validate", "tests/cli/test_main.py::test_a_valid_config_needs_no_model"),
    item("a model that is given is validated too", "test_a_model_that_is_given_is_validated_too"),
    item(
        "`gym env packages` lists the packages of a server's environment",
        "tests/cli/env/test_packages.py::test_an_environment_of_its_own_is_the_one_that_is_listed",
    ),
    item(
        "`gym env test` runs one suite, or all without a name",
        "tests/cli/env/test_server_tests.py::test_one_server_gives_the_exit_code_of_pytest",
        "tests/cli/env/test_server_tests.py::test_all_servers_are_tested_shown_in_order_and_counted",
    ),
    item(
        "`gym env start` starts agents, models and resources of the configs",
        "tests/e2e/test_lifecycle.py::test_the_client_script_of_the_tutorial_asks_a_running_agent",
    ),
    item(
        "each server runs in an environment that fits it",
        "tests/e2e/test_environments.py::test_two_versions_of_a_library_run_side_by_side_and_a_second_start_builds_nothing",
    ),
    item(
        "`gym env status` shows running servers and their health",
        "test_status_as_json_has_its_documented_fields",
        "tests/cli/env/test_server_status.py::test_healthy_servers_are_listed_as_the_documentation_shows",
    ),
    # Evaluation
    item(
        "`gym eval prepare` runs the prepare.py of a benchmark",
        "tests/cli/test_prepare.py::test_the_script_of_a_benchmark_writes_its_data",
    ),
    item(
        "`gym eval run` collates, starts servers and collects",
        "tests/e2e/test_eval_run.py::test_a_run_scores_every_rollout_and_says_so",
    ),
    item("`--no-serve` collects from servers that run", "test_flags_and_overrides_collect_the_same_rollouts"),
    item(
        "`--temperature`, `--top-p` and `--max-output-tokens` set create params",
        "test_the_flags_of_generation_set_create_params",
    ),
    item("`++responses_create_params.FIELD` sets any other", "test_flags_and_overrides_collect_the_same_rollouts"),
    item(
        "overrides are merged into each row, top-level keys only",
        "test_a_nested_override_replaces_the_whole_value",
        "tests/rollouts/test_expand.py::test_overrides_replace_whole_values",
    ),
    # Resuming
    item(
        "the expanded rows go to STEM_materialized_inputs.jsonl",
        "tests/test_rollout_collection.py::test_the_materialized_inputs_lie_beside_the_output",
    ),
    item("every scored rollout is written as it ends", "tests/rollouts/test_journal.py::test_each_record_is_one_write"),
    item(
        "failures go to STEM_failures.jsonl",
        "tests/e2e/test_eval_run.py::test_faults_become_named_failures_and_a_resumed_run_reaches_all",
    ),
    item(
        "`--resume` plays what is missing, by task and rollout index",
        "test_resuming_plays_what_is_missing_and_says_how_much",
        "tests/rollouts/test_resume.py::test_only_what_is_missing_is_left_all_tasks_once_before_any_again",
    ),
    item("it says how much was there and how much is left", "test_resuming_plays_what_is_missing_and_says_how_much"),
    item("without the files of a run, it starts afresh", "test_resuming_nothing_starts_afresh"),
    item(
        "without `--resume`, old output is cleared",
        "tests/rollouts/test_journal.py::test_a_new_run_clears_the_files_of_the_old_one_when_it_begins",
    ),
    item(
        "a run whose config or data has changed is noticed",
        "tests/rollouts/test_run_manifest.py::test_differences_name_what_changed_with_old_and_new_values",
    ),
    # Afterwards
    item(
        "`gym eval aggregate` merges the files of a glob",
        "test_shards_are_merged_and_rewards_profiled_as_in_the_examples",
        "tests/cli/test_eval_files.py::test_shards_are_merged_in_order_and_aggregated",
    ),
    item(
        "metrics of the union go to STEM_aggregate_metrics.json",
        "test_shards_are_merged_and_rewards_profiled_as_in_the_examples",
    ),
    item(
        "`+disable_aggregation=true` leaves metrics to aggregate",
        "test_shards_are_merged_and_rewards_profiled_as_in_the_examples",
    ),
    item(
        "`gym eval profile` has the statistics of each task",
        "test_shards_are_merged_and_rewards_profiled_as_in_the_examples",
        "tests/cli/test_eval_files.py::test_a_profile_has_a_line_for_every_task",
    ),
    item(
        "`gym dev test` runs the core tests with coverage",
        "tests/cli/env/test_packages.py::test_the_tests_of_a_clone_run_with_coverage_and_give_their_exit_code",
    ),
    # From `ng_*` to `gym`
    item(
        "a legacy command says what replaces it, then runs it",
        "tests/cli/test_legacy.py::test_a_legacy_command_names_its_replacement_and_runs_it",
    ),
    item("every legacy command has a replacement", "test_every_legacy_command_names_its_replacement"),
    item(
        "common overrides have flags that mean the same",
        "tests/cli/test_flags.py::test_every_kind_of_flag_becomes_its_override",
    ),
]


def rows_of(project: Project, name: str) -> list[dict]:
    return [json.loads(line) for line in (project.folder / name).read_text().splitlines()]


def collect(tell, *words: str) -> str:
    """Collect from the running servers; what was said on the way."""
    said = tell("gym", "eval", "run", "--no-serve", "-a", AGENT, "-i", "weather_query.jsonl", *words)
    assert said.code == 0, said.err
    return said.err


# --- the command line -------------------------------------------------------------------------------------------------


def test_gym_and_ng_are_one_program():
    for name in ("gym", "ng"):
        (script,) = entry_points(group="console_scripts", name=name)
        assert script.value == "nemo_gym.cli.main:main"


@pytest.mark.parametrize("name", FLAGS)
def test_help_of_a_command_lists_its_documented_flags(name, run, tmp_path):
    said = run(tmp_path, "gym", *name.split(), "-h")
    assert said.code == 0
    assert said.out.startswith(f"usage: gym {name}")
    spelt = {word.strip(",") for word in said.out.split()}
    assert set(FLAGS[name]) <= spelt


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_lists_its_commands(group, run, tmp_path):
    assert run(tmp_path, "gym", group, "-h").code == run(tmp_path, "gym", group, "--help").code == 0
    assert all(name in run(tmp_path, "gym", group, "-h").out for name in GROUPS[group])


def test_the_four_model_flags_reach_the_model_server(run, tmp_path):
    said = run(
        *(tmp_path, "gym", "env", "resolve", "--resources-server", "example_single_tool_call"),
        *("--model-type", "openai_model", "--model", "gpt-x", "--model-url", "http://m/v1", "--model-api-key", "sk-x"),
    )
    assert "openai_model:" in said.out
    assert all(
        f"policy_{line}" in said.out for line in ("model_name: gpt-x", "base_url: http://m/v1", "api_key: '****'")
    )


def test_an_override_without_a_flag_reaches_the_config(run, tmp_path):
    key = "++example_single_tool_call_simple_agent.responses_api_agents.simple_agent.max_steps=3"
    said = run(tmp_path, "gym", "env", "resolve", "--resources-server", "example_single_tool_call", key)
    assert "max_steps: 3" in said.out


def test_environments_are_listed_by_the_name_that_selects_them(run, tmp_path):
    listed = json.loads(run(tmp_path, "gym", "list", "environments", "--json").out)
    assert len(listed) > 3
    for entry in listed:
        assert {"name", "domain", "description"} <= set(entry)
        assert (PARENT_DIR / "environments" / entry["name"] / "config.yaml").is_file()
    said = run(tmp_path, "gym", "env", "validate", "--environment", listed[0]["name"])
    assert (said.code, said.out) == (0, "✓ Config is valid.\n")


def test_a_model_that_is_given_is_validated_too(run, tmp_path):
    words = ("gym", "env", "validate", "--config", SERVER, "--config", MODEL)
    assert run(tmp_path, *words, "++policy_model.responses_api_models.openai_model.entrypoint=none.py").code == 1


def test_every_legacy_command_names_its_replacement(run, tmp_path, monkeypatch, capsys):
    for name in LEGACY:
        monkeypatch.setattr(sys, "argv", [f"ng_{name}", "--help"])
        legacy.main()
        assert f"use `gym {' '.join(LEGACY[name])}` instead" in capsys.readouterr().err


# --- collecting -------------------------------------------------------------------------------------------------------


def test_the_flags_of_generation_set_create_params(running, tell):
    collect(
        tell, "-o", "flags.jsonl", "--limit", "1", "--temperature", "0.1", "--top-p", "0.2", "--max-output-tokens", "9"
    )
    (row,) = rows_of(running, "flags_materialized_inputs.jsonl")
    params = row["responses_create_params"]
    assert (params["temperature"], params["top_p"], params["max_output_tokens"]) == (0.1, 0.2, 9)


def test_a_nested_override_replaces_the_whole_value(running, tell):
    row = json.loads(EXAMPLES.read_text().splitlines()[0])
    row["responses_create_params"]["reasoning"] = {"summary": "auto"}
    (running.folder / "nested.jsonl").write_text(json.dumps(row))
    collect(tell, "-i", "nested.jsonl", "-o", "low.jsonl", "++responses_create_params.reasoning.effort=low")
    (planned,) = rows_of(running, "low_materialized_inputs.jsonl")
    assert planned["responses_create_params"]["reasoning"] == {"effort": "low"}
    assert planned["responses_create_params"]["tools"] == row["responses_create_params"]["tools"]


def test_resuming_plays_what_is_missing_and_says_how_much(running, tell):
    collect(tell, "-o", "whole.jsonl", "--num-repeats", "2")
    whole = running.folder / "whole.jsonl"
    lines = whole.read_text().splitlines(keepends=True)
    whole.write_text("".join(lines[:3]))
    said = collect(tell, "-o", "whole.jsonl", "--num-repeats", "2", "--resume")
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows_of(running, "whole.jsonl")]
    assert sorted(keys) == [(task, rollout) for task in range(len(lines) // 2) for rollout in range(2)]
    assert f"{len(lines)} rollouts planned: 3 done, {len(lines) - 3} left" in said
    assert whole.read_text().startswith("".join(lines[:3]))


def test_resuming_nothing_starts_afresh(running, tell):
    collect(tell, "-o", "new.jsonl", "--limit", "1", "--resume")
    assert len(rows_of(running, "new.jsonl")) == 1


def test_status_as_json_has_its_documented_fields(running, tell):
    listed = json.loads(tell("gym", "env", "status", "--json").out)
    fields = "config_path dir_path entrypoint host name pid port process_name server_type start_time status"
    assert all({*fields.split(), "uptime_seconds", "url"} <= set(server) for server in listed)
    assert len(listed) == 3


def test_flags_and_overrides_collect_the_same_rollouts(running, tell):
    done = tell(
        *("gym", "eval", "run", "--no-serve", "++responses_create_params.top_p=0.9", "--temperature", "0.5"),
        *("-a", "example_single_tool_call_simple_agent", "-i", "weather_query.jsonl", "--limit", "2"),
        *("-o", "mixed.jsonl", "+num_repeats=2", "--json", "--quiet"),
    )
    assert json.loads(done.out)["counts"]["scored"] == 4
    rows = [json.loads(line) for line in (running.folder / "mixed.jsonl").read_text().splitlines()]
    assert {(row["responses_create_params"][key] or 0) for row in rows for key in ("temperature", "top_p")} == {
        0.5,
        0.9,
    }


def test_shards_are_merged_and_rewards_profiled_as_in_the_examples(running, tell):
    for shard in ("a", "b"):
        done = tell(
            *("gym", "eval", "run", "--no-serve", "+disable_aggregation=true", "--num-repeats", "2", "--quiet"),
            *("-a", "example_single_tool_call_simple_agent", "-i", "weather_query.jsonl", "-o", f"shard_{shard}.jsonl"),
        )
        assert done.code == 0, done.err
    merged = tell("ng_aggregate_rollouts", "+input_glob=shard_a.jsonl", "+output_jsonl_fpath=all.jsonl")
    assert merged.code == 0, merged.err
    (agent,) = json.loads((running.folder / "all_aggregate_metrics.json").read_text())
    assert {"agent_ref", "agent_metrics", "key_metrics", "group_level_metrics"} <= set(agent)
    profiled = tell("gym", "eval", "profile", "--rollouts", "shard_b.jsonl", "--json")
    assert json.loads(profiled.out)["counts"]["scored"] == 2 * len(EXAMPLES.read_text().splitlines())
    assert (running.folder / "shard_b_reward_profiling.jsonl").is_file()


def test_a_config_is_valid_in_both_languages(running, tell):
    for words in (("ng_validate", f"+config_paths=[{SERVER}]"), ("ng", "env", "validate", "--config", SERVER)):
        assert tell(*words).out == "✓ Config is valid.\n"
