# SPDX-License-Identifier: Apache-2.0
"""The reference of the commands `ng_*`: each is there in both spellings, takes its parameters, and its examples run."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR, __version__
from nemo_gym.cli import legacy
from nemo_gym.cli.command_table import COMMANDS, GROUPS
from nemo_gym.cli.legacy import LEGACY
from tests.seeds.items import item
from tests.seeds.serving import EXAMPLES, MODEL, SERVER

BIN = Path(sys.executable).parent

# What the older command reference documents: the parameters of each command.
LEGACY_PARAMETERS = {
    "run": ["config_paths"],
    "test": ["entrypoint", "should_validate_data"],
    "test_all": ["fail_on_total_and_test_mismatch"],
    "dev_test": [],
    "init_resources_server": ["entrypoint"],
    "collect_rollouts": [
        "agent_name",
        "input_jsonl_fpath",
        "output_jsonl_fpath",
        "limit",
        "num_repeats",
        "num_samples_in_parallel",
        "responses_create_params",
    ],
    "profile": ["input_jsonl_fpath", "rollouts_jsonl_fpath", "output_jsonl_fpath", "pass_threshold"],
    "viewer": ["jsonl_fpath", "server_host", "server_port"],
    "dump_config": ["config_paths"],
    "version": ["json_format"],
    "pip_list": ["entrypoint", "format", "outdated"],
    "status": [],
    "validate": ["config_paths"],
    "e2e_collect_rollouts": ["output_jsonl_fpath", "split"],
    "aggregate_rollouts": ["input_glob", "output_jsonl_fpath"],
    "reward_profile": ["rollouts_jsonl_fpath"],
    "list_benchmarks": [],
    "prepare_benchmark": ["prepare_script_args"],
    "prepare_data": ["output_dirpath", "mode", "should_download"],
    "materialize_prompts": ["input_jsonl_fpath", "prompt_config", "output_jsonl_fpath"],
    "upload_dataset_to_gitlab": ["dataset_name", "version", "input_jsonl_fpath"],
    "download_dataset_from_gitlab": ["dataset_name", "version", "artifact_fpath", "output_fpath"],
    "delete_dataset_from_gitlab": ["dataset_name"],
    "upload_dataset_to_hf": [
        *("hf_token", "hf_organization", "hf_collection_name", "hf_collection_slug", "dataset_name"),
        *("input_jsonl_fpath", "resource_config_path", "hf_dataset_prefix", "delete_from_gitlab"),
        *("split", "create_pr", "revision", "commit_message", "commit_description"),
    ],
    "download_dataset_from_hf": ["output_fpath", "hf_token", "artifact_fpath", "repo_id", "output_dirpath", "split"],
    "gitlab_to_hf_dataset": [
        *("hf_token", "hf_organization", "hf_collection_name", "hf_collection_slug", "dataset_name"),
        *("input_jsonl_fpath", "resource_config_path", "hf_dataset_prefix"),
    ],
}
SPELLINGS = [f"{prefix}_{name}" for name in (*LEGACY_PARAMETERS, "help") for prefix in ("ng", "nemo_gym")]

DEFAULTS = {
    "test": {"should_validate_data": "False"},
    "test_all": {"fail_on_total_and_test_mismatch": "False"},
    "collect_rollouts": {"limit": "None", "num_samples_in_parallel": "None"},
    "profile": {"pass_threshold": "None"},
    "prepare_data": {"should_download": "False"},
    "viewer": {"server_host": "127.0.0.1", "server_port": "7860"},
    "upload_dataset_to_hf": {"delete_from_gitlab": "False"},
    "version": {"json_format": "False"},
    "pip_list": {"format": "None", "outdated": "False"},
}


ITEMS = [
    # All commands
    item(
        "every command has a short and a full name",
        "test_the_command_is_installed",
        "test_every_legacy_name_is_installed_in_both_spellings",
    ),
    item("both names do the same", "test_status_shows_every_server_as_documented"),
    item("every command still does what it did", "test_a_legacy_command_stands_for_one_that_exists"),
    item(
        "`+help=true` and `+h=true` list all parameters of a command with their meaning",
        "test_help_of_a_legacy_command_lists_its_documented_parameters",
    ),
    item("parameters have the documented defaults", "test_a_parameter_has_its_documented_default"),
    # ng_run
    item("`ng_run` starts models, resources and agents", "test_status_shows_every_server_as_documented"),
    item("`+config_paths=[a.yaml,b.yaml]` is a list of files", "test_status_shows_every_server_as_documented"),
    item("the example starts three servers", "test_all_servers_of_the_example_start"),
    # ng_test
    item("`ng_test` runs the pytest suite of a server", "test_a_server_is_tested_as_in_the_examples"),
    item(
        "`entrypoint` is a relative path of two parts",
        "test_a_server_is_tested_as_in_the_examples",
        "tests/cli/env/test_server_tests.py::test_a_server_that_is_not_there_is_a_usage_error",
    ),
    item(
        "`should_validate_data` checks examples, metrics and rollouts too",
        "tests/cli/env/test_server_tests.py::test_data_is_looked_at_for_one_server_only_if_asked_and_for_all_always",
        "tests/cli/env/test_server_tests.py::test_every_fault_of_the_data_is_named_with_the_command_that_mends_it",
    ),
    # ng_test_all
    item(
        "`ng_test_all` tests every server",
        "tests/cli/env/test_server_tests.py::test_the_older_commands_do_the_same",
        "tests/cli/env/test_server_tests.py::test_all_servers_are_tested_shown_in_order_and_counted",
    ),
    item(
        "`fail_on_total_and_test_mismatch` fails if a server has no tests",
        "tests/cli/env/test_server_tests.py::test_a_server_without_a_readme_is_not_tested_which_can_be_made_a_failure",
    ),
    # ng_dev_test
    item(
        "`ng_dev_test` runs the core tests with coverage",
        "tests/cli/env/test_packages.py::test_the_tests_of_a_clone_run_with_coverage_and_give_their_exit_code",
    ),
    # ng_init_resources_server
    item(
        "`ng_init_resources_server` makes a folder with template files",
        "test_a_server_is_made_and_its_packages_listed_as_in_the_examples",
        "tests/cli/env/test_init.py::test_the_older_command_makes_it_too",
    ),
    # ng_collect_rollouts
    item("`agent_name` is the agent that plays", "test_rollouts_are_collected_and_profiled_as_in_the_examples"),
    item("`input_jsonl_fpath` is read", "test_rollouts_are_collected_and_profiled_as_in_the_examples"),
    item("`output_jsonl_fpath` is written", "test_rollouts_are_collected_and_profiled_as_in_the_examples"),
    item("`limit` takes the first rows", "tests/rollouts/test_expand.py::test_the_limit_counts_lines"),
    item("`num_repeats` plays each row so often", "test_rollouts_are_collected_and_profiled_as_in_the_examples"),
    item(
        "`num_samples_in_parallel` bounds what runs at once",
        "tests/rollouts/test_dispatch.py::test_no_more_run_than_the_limit_and_rows_are_pulled_one_ahead_at_most",
    ),
    item(
        "`responses_create_params` overrides temperature and output tokens",
        "test_null_stands_for_a_parameter_that_is_not_given",
    ),
    item("parameters may be left out", "test_null_stands_for_a_parameter_that_is_not_given"),
    # ng_profile
    item(
        "`ng_profile` makes a dataset of tasks with their rewards",
        "test_rollouts_are_collected_and_profiled_as_in_the_examples",
        "tests/cli/test_eval_files.py::test_the_legacy_profile_writes_tasks_with_their_statistics",
    ),
    item(
        "a profiled row has the fields of its task, mean, deviation, least, greatest and number",
        "test_rollouts_are_collected_and_profiled_as_in_the_examples",
        "tests/results/test_profile_files.py::test_a_dataset_is_profiled_with_the_deviation_of_the_population",
    ),
    item(
        "pass rates are there only with `pass_threshold`",
        "tests/results/test_profile_files.py::test_a_dataset_profile_has_pass_rates_only_with_a_threshold",
    ),
    item(
        "rollouts must belong to the dataset",
        "tests/results/test_profile_files.py::test_rollouts_of_another_dataset_are_an_error_and_nothing_is_written",
    ),
    # ng_prepare_data
    item("`mode=example_validation` checks example data", "test_example_data_is_prepared_as_in_the_examples"),
    item(
        "`mode=train_preparation` prepares train and validation",
        "tests/cli/dataset/test_collate.py::test_the_legacy_command_does_the_same",
        "tests/test_train_data_utils.py::test_each_mode_is_about_its_own_datasets",
    ),
    item("there is no third mode", "test_a_mode_that_is_not_there_is_refused"),
    item("datasets and metrics go to `output_dirpath`", "test_example_data_is_prepared_as_in_the_examples"),
    item(
        "`should_download` fetches what is missing",
        "tests/test_train_data_utils.py::test_what_is_missing_is_fetched_when_asked",
    ),
    # ng_viewer
    item(
        "`ng_viewer +jsonl_fpath=FILE` shows rollouts in a browser",
        "tests/cli/test_view.py::test_a_file_is_named_as_a_word_or_as_a_setting",
        "tests/cli/test_view.py::test_the_older_command_opens_it_too",
    ),
    item(
        "`server_host=0.0.0.0` takes requests from anywhere",
        "tests/cli/test_view.py::test_it_listens_for_every_address_if_asked_to",
    ),
    item(
        "`server_port` is the port, or the next free one",
        "tests/viewer/browser/test_serve.py::test_a_free_port_is_taken_as_asked",
        "tests/viewer/browser/test_serve.py::test_a_taken_port_gives_the_next_free_one",
    ),
    # GitLab
    item(
        "`ng_upload_dataset_to_gitlab` uploads a file as a version",
        "tests/cli/dataset/test_gitlab.py::test_the_older_commands_do_the_same",
    ),
    item(
        "a version has the form x.x.x",
        "tests/data/gitlab/test_datasets.py::test_a_version_has_three_numbers",
    ),
    item(
        "`ng_download_dataset_from_gitlab` saves an artifact to `output_fpath`",
        "tests/cli/dataset/test_gitlab.py::test_the_older_commands_do_the_same",
    ),
    item(
        "`ng_delete_dataset_from_gitlab` deletes a dataset",
        "tests/cli/dataset/test_gitlab.py::test_the_older_commands_do_the_same",
    ),
    item("deleting asks first", "tests/cli/dataset/test_gitlab.py::test_only_yes_deletes"),
    # Hugging Face
    item(
        "`ng_upload_dataset_to_hf` uploads a file",
        "tests/cli/dataset/test_hf.py::test_the_legacy_command_uploads",
    ),
    item(
        "the name is made of organization, prefix, domain and server",
        "tests/cli/dataset/test_hf.py::test_an_upload_is_named_after_organization_prefix_domain_and_server",
    ),
    item(
        "the dataset joins a collection, known by name and slug",
        "tests/data/test_hub_names.py::test_the_name_of_a_collection_is_its_title_and_slug",
        "tests/data/test_hub_upload.py::test_a_file_goes_into_a_new_private_repository_and_the_collection",
    ),
    item(
        "the domain is read from `resource_config_path`",
        "tests/data/test_hub_names.py::test_the_domain_is_that_of_the_resources_server",
    ),
    item(
        "`hf_dataset_prefix` stands before the name; its default is the one that the FAQ gives",
        "tests/seeds/test_faq.py::test_the_prefix_of_datasets_is_the_documented_one",
    ),
    item(
        "`delete_from_gitlab` deletes there after the upload",
        "tests/cli/dataset/test_hf.py::test_an_upload_deletes_from_gitlab_only_if_told_to",
    ),
    item(
        "`ng_download_dataset_from_hf` saves an artifact of a repository",
        "tests/cli/dataset/test_hf.py::test_a_raw_file_is_downloaded_by_the_legacy_command",
    ),
    item(
        "`ng_gitlab_to_hf_dataset` uploads and deletes from GitLab",
        "tests/cli/dataset/test_hf.py::test_the_legacy_command_migrates",
    ),
    item(
        "it has no `delete_from_gitlab`",
        "tests/cli/dataset/test_hf.py::test_migrate_does_not_take_the_option_that_upload_has",
    ),
    # Configuration and help
    item("`ng_dump_config` prints the resolved config", "test_the_config_is_dumped_without_its_secrets"),
    item("`ng_help` lists all commands", "test_help_of_help_lists_every_command_in_both_languages"),
    item("`ng_version` tells version and system", "test_version_tells_everything_and_as_json"),
    item("`ng_version +json=true` is JSON", "test_version_tells_everything_and_as_json"),
    item(
        "`ng_pip_list` lists the packages of a server",
        "test_a_server_is_made_and_its_packages_listed_as_in_the_examples",
    ),
    item(
        "`format` is columns, freeze or json",
        "tests/cli/env/test_packages.py::test_the_format_can_be_chosen_as_in_the_older_command",
    ),
    item("`outdated` lists what has newer versions", "test_packages_can_be_asked_whether_they_are_outdated"),
    item(
        "every server has an environment of its own",
        "tests/cli/env/test_packages.py::test_an_environment_of_its_own_is_the_one_that_is_listed",
    ),
    item(
        "`ng_status` lists servers with mark, type, port, pid and uptime",
        "test_status_shows_every_server_as_documented",
    ),
    item("it ends with how many are healthy", "test_status_shows_every_server_as_documented"),
]


# --- they exist -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", SPELLINGS)
def test_the_command_is_installed(alias):
    (script,) = entry_points(group="console_scripts", name=alias)
    assert script.value == "nemo_gym.cli.legacy:main"


def test_every_legacy_name_is_installed_in_both_spellings():
    installed = {script.name for script in entry_points(group="console_scripts")}
    assert {f"{prefix}_{name}" for name in LEGACY for prefix in ("ng", "nemo_gym")} <= installed


@pytest.mark.parametrize("name", [name for name in LEGACY_PARAMETERS if name in LEGACY])
def test_a_legacy_command_stands_for_one_that_exists(name):
    first, *rest = LEGACY[name]
    assert first in COMMANDS or first == "--version" or rest[0] in GROUPS[first]


@pytest.mark.parametrize("prefix", ["ng", "nemo_gym"])
@pytest.mark.parametrize("name", LEGACY_PARAMETERS)
@pytest.mark.parametrize("asked", ["+help=true", "+h=true"])
def test_help_of_a_legacy_command_lists_its_documented_parameters(prefix, name, asked, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"/bin/{prefix}_{name}", asked])
    assert legacy.run_alias() == 0
    out, err = capsys.readouterr()
    assert err == (
        f"⚠ `{prefix}_{name}` is deprecated and will be removed in a future release; "
        f"use `gym {' '.join(LEGACY[name])}` instead.\n"
    )
    assert out.startswith("Displaying help for ")
    listed = {line.split()[1]: line for line in out.splitlines() if line.startswith("- ")}
    assert set(LEGACY_PARAMETERS[name]) <= set(listed)
    assert all("(" in line and ("[required]" in line or "[default: " in line) for line in listed.values())


def test_help_of_help_lists_every_command_in_both_languages(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/bin/ng_help"])
    assert legacy.run_alias() == 0
    out = capsys.readouterr().out
    assert all(f"{group}: " in out for group in GROUPS)
    assert all(f"ng_{name} " in out for name in LEGACY)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_parameter_has_its_documented_default(run, tmp_path, name):
    said = run(tmp_path, f"ng_{name}", "+help=true").out
    for parameter, default in DEFAULTS[name].items():
        (line,) = [line for line in said.splitlines() if line.startswith(f"- {parameter} ")]
        assert f"[default: {default}]" in line


def test_a_mode_that_is_not_there_is_refused(run, tmp_path):
    said = run(tmp_path, "ng_prepare_data", f"+config_paths=[{SERVER}]", "+output_dirpath=data", "+mode=training")
    assert said.code != 0
    assert all(mode in said.err for mode in ("train_preparation", "example_validation"))


def test_packages_can_be_asked_whether_they_are_outdated(run, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: asked.append(words) or subprocess.CompletedProcess(words, 0, "", "")
    )
    run(tmp_path, "ng_pip_list", "+entrypoint=resources_servers/example_single_tool_call", "+outdated=true")
    assert "--outdated" in asked[0]


# --- they do what the examples show -----------------------------------------------------------------------------------


def test_all_servers_of_the_example_start(running):
    assert "All 3 / 3 servers ready!" in running.started


@pytest.mark.parametrize("alias", ["ng_status", "nemo_gym_status"])
def test_status_shows_every_server_as_documented(tell, alias):
    done = tell(alias)
    assert done.code == 0
    assert "NeMo Gym Server Status:" in done.out
    assert "✓ example_single_tool_call_simple_agent (responses_api_agents/simple_agent)" in done.out
    for field in ("server_type", "name", "port", "pid", "uptime_seconds"):
        assert done.out.count(f"    '{field}': ") == 3
    assert "3 servers found (3 healthy, 0 unhealthy)" in done.out


def test_rollouts_are_collected_and_profiled_as_in_the_examples(running, tell):
    collected = tell(
        "ng_collect_rollouts",
        "+agent_name=example_single_tool_call_simple_agent",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+output_jsonl_fpath=weather_rollouts.jsonl",
        "+limit=100",
        "+num_repeats=4",
        "+num_samples_in_parallel=10",
    )
    assert collected.code == 0, collected.err
    rows = [json.loads(line) for line in (running.folder / "weather_rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * len(EXAMPLES.read_text().splitlines())
    assert {"response", "reward", "_ng_task_index", "_ng_rollout_index"} <= set(rows[0])

    profiled = tell(
        "ng_profile",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+rollouts_jsonl_fpath=weather_rollouts.jsonl",
        "+output_jsonl_fpath=profiled_tasks.jsonl",
        "+pass_threshold=1.0",
    )
    assert profiled.code == 0, profiled.err
    task = json.loads((running.folder / "profiled_tasks.jsonl").read_text().splitlines()[0])
    statistics = "avg_reward std_reward min_reward max_reward total_samples pass_rate pass_rate_total pass_rate_passed"
    assert {"responses_create_params", *statistics.split(), "pass_threshold"} <= set(task)


def test_null_stands_for_a_parameter_that_is_not_given(running, tell):
    done = tell(
        "nemo_gym_collect_rollouts",
        "+agent_name=example_single_tool_call_simple_agent",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+output_jsonl_fpath=one.jsonl",
        "+limit=null",
        "+num_repeats=null",
        "+num_samples_in_parallel=null",
        "+responses_create_params={temperature: 0.5, max_output_tokens: 64}",
    )
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (running.folder / "one.jsonl").read_text().splitlines()]
    assert len(rows) == len(EXAMPLES.read_text().splitlines())
    assert {row["responses_create_params"]["temperature"] for row in rows} == {0.5}


def test_the_config_is_dumped_without_its_secrets(running, tell):
    done = tell("ng_dump_config", f"+config_paths=[{SERVER},{MODEL}]")
    assert done.code == 0
    assert "sk-hidden" not in done.out + done.err
    assert "policy_model_name: fake" in done.out


@pytest.mark.parametrize("alias", ["ng_version", "nemo_gym_version"])
def test_version_tells_everything_and_as_json(run, tmp_path, alias):
    text = run(tmp_path, alias).out
    assert text.startswith(f"NeMo Gym v{__version__}\nPython ")
    for part in ("Installation: ", "Key Dependencies:", "  openai: ", "  ray: ", "System:", "  OS: ", "  Memory: "):
        assert part in text
    facts = json.loads(run(tmp_path, alias, "+json=true").out)
    assert set(facts) == {"nemo_gym", "python", "python_path", "installation_path", "dependencies", "system"}
    assert facts == json.loads(run(tmp_path, "gym", "--version", "--json").out)


def test_a_server_is_made_and_its_packages_listed_as_in_the_examples(run, tmp_path):
    made = run(tmp_path, "ng_init_resources_server", "+entrypoint=resources_servers/my_server")
    assert made.code == 0, made.err
    folder = tmp_path / "resources_servers/my_server"
    assert all((folder / name).is_file() for name in ("app.py", "configs/my_server.yaml", "tests/test_app.py"))
    listed = run(tmp_path, "ng_pip_list", "+entrypoint=resources_servers/example_single_tool_call", "+format=json")
    assert {"name", "version"} <= set(json.loads(listed.out)[0])


@pytest.mark.slow
def test_a_server_is_tested_as_in_the_examples(tmp_path):
    done = subprocess.run(
        [str(BIN / "ng_test"), "+entrypoint=resources_servers/example_single_tool_call"],
        cwd=tmp_path,
        # Loading every plugin of this environment takes longer than everything else.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "passed" in done.stdout) == (0, True)


def test_example_data_is_prepared_as_in_the_examples(run, tmp_path):
    server = "resources_servers/example_multi_step"
    shutil.copytree(PARENT_DIR / server, tmp_path / server, ignore=shutil.ignore_patterns(".venv"))
    paths = f"+config_paths=[{server}/configs/example_multi_step.yaml,{MODEL}]"
    done = run(
        tmp_path, "ng_prepare_data", paths, "+output_dirpath=data/example_multi_step", "+mode=example_validation"
    )
    assert done.code == 0, done.err
    metrics = json.loads((tmp_path / "data/example_multi_step/example_metrics.json").read_text())
    assert metrics["Number of examples"] == 5
    assert len((tmp_path / "data/example_multi_step/example.jsonl").read_text().splitlines()) == 5
