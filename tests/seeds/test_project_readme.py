# SPDX-License-Identifier: Apache-2.0
"""The project's README with its how-tos: set-up, configs, the weather example, a server of one's own, data."""

import ast
import asyncio
import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from nemo_gym import PARENT_DIR
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ModelServerRef, ResourcesServerRef, ServerClient, get_response_json
from responses_api_agents.simple_agent.app import SimpleAgentConfig
from tests.seeds.items import DATASETS, PREPARING_DATA, item
from tests.seeds.serving import MODEL, Project, ng_run

KINDS = ["responses_api_models", "resources_servers", "responses_api_agents"]
WEATHER = "resources_servers/simple_weather/configs/simple_weather.yaml"
MULTINEEDLE = "resources_servers/multineedle/configs/multineedle.yaml"
AGENT_FILE = "responses_api_agents/simple_agent/configs/simple_agent.yaml"
REFERENCE = "responses_api_agents.simple_agent.resources_server.name"
POLICY = "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-hidden\npolicy_model_name: gpt-4.1\n"

ITEMS = [
    # Setup
    item(
        "`uv venv --python 3.12` makes the environment",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
    item(
        "`uv sync --extra dev --group docs` installs everything",
        "tests/test_development_setup.py::test_the_documented_extra_and_group_are_there",
        "tests/test_development_setup.py::test_the_lock_fits_the_project",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
    item(
        "`pre-commit install` sets the hooks up",
        "test_the_hooks_of_pre_commit_run_tools_that_are_installed",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
    item(
        "`ng_dev_test` runs the tests of the core",
        "tests/cli/env/test_packages.py::test_the_tests_of_a_clone_run_with_coverage_and_give_their_exit_code",
    ),
    item(
        "`coverage html` shows what `ng_dev_test` covered",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
    item(
        "`ng_test +entrypoint=responses_api_agents/simple_agent` tests one server",
        "tests/cli/env/test_server_tests.py::test_the_older_commands_do_the_same",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
    item("`ng_test_all` tests all servers", "tests/cli/env/test_server_tests.py::test_the_older_commands_do_the_same"),
    # Configs
    item("models, resources and agents are in three folders beside `nemo_gym`", "test_there_are_three_kinds_of_server"),
    item(
        "models answer Responses and Chat Completions",
        "responses_api_models/openai_model/tests/test_app.py::test_a_responses_request_goes_through_with_the_configured_model",
        "responses_api_models/openai_model/tests/test_app.py::test_a_chat_request_goes_through_with_the_configured_model",
    ),
    item(
        "agents answer Responses",
        "responses_api_agents/simple_agent/tests/test_app.py::TestRollout::test_the_response_holds_everything_after_the_input_in_order",
    ),
    item(
        "the config of `simple_agent` has instance, kind, type, entrypoint and references",
        "test_the_simple_agent_is_configured_as_shown",
    ),
    item(
        "`???` marks a value that must be given",
        "test_the_simple_agent_is_configured_as_shown",
        "tests/config/test_interpolation.py::test_every_missing_value_is_listed_at_once_with_an_override_for_it",
    ),
    item(
        "names of instances are unique",
        "tests/config/test_config_parser.py::test_one_name_for_two_servers_in_two_files_is_reported_with_both_files",
    ),
    item(
        "`SimpleAgentConfig` has `ResourcesServerRef` and `ModelServerRef` of `server_utils`",
        "test_the_config_class_of_the_simple_agent_has_two_references",
    ),
    item(
        "a server's config may have any structure",
        "tests/config/test_server_blocks.py::test_extra_keys_are_allowed_on_every_level",
    ),
    item(
        "a reference to no server is an error that lists the servers",
        "tests/config/test_server_blocks.py::test_an_unknown_reference_names_instance_field_and_the_nearest_names",
    ),
    item(
        "a missing value is an error that names its key",
        "tests/config/test_interpolation.py::test_an_interpolation_to_nothing_names_both_keys_the_nearest_and_an_override",
    ),
    # Policy model
    item(
        "`policy_base_url`, `policy_api_key` and `policy_model_name` say which model is trained",
        "responses_api_models/openai_model/tests/test_app.py::test_the_shipped_config_names_the_policy_model",
    ),
    item(
        "agents share the model server; `openai_model` is its older name",
        "tests/config/test_server_names.py::test_a_reference_to_the_older_name_leads_to_the_policy_model",
    ),
    item(
        "`openai_model_name` is the older name of the field",
        "responses_api_models/openai_model/tests/test_app.py::test_the_older_name_of_the_model_field_still_works",
    ),
    # Running servers
    item(
        "configs come from files, env.yaml and the command line",
        "tests/test_global_config.py::test_command_line_env_yaml_and_files_make_the_config",
    ),
    item(
        "later files win over earlier ones, then env.yaml, then the command line",
        "tests/config/test_config_parser.py::test_earlier_files_yield_to_later_ones_then_env_yaml_then_the_caller_then_the_command_line",
    ),
    item(
        "`ng_run` with two files and a reference on the command line starts the weather example",
        "test_the_weather_example_starts_as_shown",
    ),
    item("model and key are read from env.yaml", "test_the_weather_example_starts_as_shown"),
    item("Git ignores env.yaml", "test_git_ignores_what_holds_keys"),
    item("`+config_paths=${name}` takes a list of env.yaml", "test_config_paths_may_be_kept_in_env_yaml"),
    item(
        "`+simple_agent…resources_server.name=` fills the reference left open",
        "test_config_paths_may_be_kept_in_env_yaml",
    ),
    item("servers tell when they are up and where", "test_the_weather_example_starts_as_shown"),
    item(
        "the head server listens at 127.0.0.1:11000", "tests/config/test_defaults.py::test_settings_get_their_defaults"
    ),
    item(
        "it holds the config of all servers",
        "tests/test_server_utils.py::test_the_head_server_answers_as_the_contract_says",
    ),
    item(
        "servers may have a host and a port of their own",
        "tests/config/test_defaults.py::test_values_of_the_user_are_kept",
    ),
    item(
        "without a port, a free one is taken",
        "tests/config/test_defaults.py::test_every_server_gets_a_host_and_a_port_of_its_own",
    ),
    # Asking the agent
    item("`client.py` asks the running agent, whatever its name", "test_the_client_script_asks_the_only_agent"),
    item(
        "it prints the call, its output and the answer",
        "tests/e2e/test_lifecycle.py::test_the_client_script_of_the_tutorial_asks_a_running_agent",
    ),
    item("`ServerClient.load_from_global_config()` posts to a server by name", "test_a_server_is_posted_to_by_name"),
    item("the body may be `NeMoGymResponseCreateParamsNonStreaming`", "test_a_server_is_posted_to_by_name"),
    # Responses and Chat Completions
    item(
        "`output` holds messages, reasoning and function calls",
        "tests/test_openai_utils.py::test_dicts_in_an_output_become_the_classes_that_servers_check_for",
    ),
    item(
        "think blocks, text and calls of a chat reply become items of their own, in this order",
        "tests/test_responses_converter.py::test_a_reply_with_reasoning_text_and_calls_is_three_kinds_of_items",
    ),
    item(
        "reasoning is separated by the model server",
        "responses_api_models/vllm_model/tests/test_app.py::test_with_the_parser_reasoning_is_wrapped_before_the_text",
        "tests/test_responses_converter.py::test_without_reasoning_parser_think_tags_are_text",
    ),
    item("every server has at least one test", "test_every_server_has_a_test"),
    # A resources server of one's own
    item(
        "`ng_init_resources_server +entrypoint=resources_servers/test_weather` makes it",
        "test_a_new_server_has_what_the_how_to_edits",
    ),
    item("requirements.txt begins with `-e nemo-gym[dev] @ ../../`", "test_a_new_server_has_what_the_how_to_edits"),
    item(
        "app.py has the config class and the server class of that name", "test_a_new_server_has_what_the_how_to_edits"
    ),
    item("it has `setup_webserver` and `verify` to be edited", "test_a_new_server_has_what_the_how_to_edits"),
    item(
        "a tool is a method with a request and a response class, registered as a route",
        "tests/cli/env/test_init.py::test_the_edits_of_the_how_to_make_a_tool_that_an_agent_uses",
    ),
    item(
        "`verify` returns the request with a reward",
        "tests/cli/env/test_init.py::test_the_edits_of_the_how_to_make_a_tool_that_an_agent_uses",
    ),
    item(
        "a complete example is in resources_servers/simple_weather",
        "resources_servers/simple_weather/tests/test_app.py::test_a_task_is_played_under_the_older_names",
    ),
    item(
        "its agent answers that it is cold",
        "resources_servers/example_single_tool_call/tests/test_app.py::test_the_weather_is_cold_everywhere",
    ),
    item(
        "requirements of its own are installed for it alone",
        "tests/servers/installing/test_venvs.py::test_two_versions_of_one_package_live_side_by_side",
    ),
    item(
        "an environment that was built is linked as `.venv` in the server's folder",
        "tests/servers/installing/test_venvs.py::test_the_link_follows_a_change_of_requirements",
        "tests/servers/installing/test_venvs.py::test_the_running_environment_is_linked_where_a_user_activates_it",
    ),
    item(
        "pytest runs in the folder of a server",
        "tests/test_package.py::test_servers_can_be_imported_in_the_folder_of_one",
    ),
    item("README has licensing information", "tests/data/test_example_data.py::test_the_artifacts_are_complete"),
    item(
        "the data folder has five examples, metrics and rollouts",
        "tests/data/test_example_data.py::test_the_artifacts_are_complete",
    ),
    item(
        "there is a test at tests/test_app.py", "tests/cli/env/test_init.py::test_a_resources_server_has_all_its_files"
    ),
    # Multineedle
    item("`ng_run` starts it from its two files", "test_the_servers_of_multineedle_are_planned"),
    item(
        "`ng_prepare_data +mode=example_validation` checks its examples",
        "test_the_examples_of_multineedle_are_prepared",
    ),
    item(
        "`ng_collect_rollouts` with null parameters plays all its examples",
        "tests/seeds/test_legacy_command_reference.py::test_null_stands_for_a_parameter_that_is_not_given",
        "resources_servers/multineedle/tests/test_app.py::test_a_task_is_played_under_the_older_names",
    ),
    item(
        "`+simple_agent…resources_server.name=multineedle` makes an agent `simple_agent`",
        "test_an_agent_is_pointed_to_an_environment_by_an_override_alone",
    ),
    item("`ng_viewer` shows what was collected", "tests/cli/test_view.py::test_the_older_command_opens_it_too"),
    # GitLab
    item(
        "`mlflow_tracking_uri` and `mlflow_tracking_token` of env.yaml say where and who",
        "tests/test_gitlab_utils.py::test_the_registry_is_what_the_config_says",
    ),
    item(
        "datasets are uploaded and downloaded by name and version",
        "tests/cli/dataset/test_gitlab.py::test_the_older_commands_do_the_same",
    ),
    item("a version has the form x.x.x", "tests/data/gitlab/test_datasets.py::test_a_version_has_three_numbers"),
    item(
        "the registry is one of MLflow",
        "tests/data/gitlab/test_datasets.py::test_the_client_library_of_mlflow_finds_what_was_uploaded",
    ),
    # Datasets of a config
    item(
        "a new server's config has train, validation and example datasets under its agent",
        "tests/cli/env/test_init.py::test_its_config_is_that_of_the_contract",
    ),
    *DATASETS,
    item(
        "a config has an agent with an example dataset",
        "tests/data/test_example_data.py::test_a_config_defines_the_environment_and_an_agent_that_plays_in_it",
        "tests/data/test_example_data.py::test_a_dataset_is_shipped_with_its_metrics_or_names_the_script_that_writes_it",
    ),
    # Preparing data
    *PREPARING_DATA,
    item(
        "the same config paths serve `ng_prepare_data` and `ng_run`",
        "test_the_servers_of_multineedle_are_planned",
        "test_the_examples_of_multineedle_are_prepared",
    ),
    item("`ng_dump_config` prints what `ng_run` would see", "test_config_paths_may_be_kept_in_env_yaml"),
    # Why NeMo Gym
    item(
        "two environments may need two versions of math-verify",
        "tests/servers/installing/test_venvs.py::test_two_servers_with_two_versions_of_math_verify",
    ),
    item("several environments run at once", "test_two_environments_run_from_one_config"),
    item(
        "agents of other frameworks can be used",
        "responses_api_agents/remote_agent/tests/test_app.py::test_calls_that_the_remote_agent_leaves_open_are_run_here",
    ),
    item(
        "an environment can be hosted without a training framework",
        "tests/contract/thirdparty/test_bridge.py::test_a_server_can_be_hosted_by_another_framework",
    ),
    item(
        "commands run in containers, one for each task",
        "tests/sandbox/providers/test_docker.py::test_a_command_is_run_with_these_arguments",
    ),
    # Contributing
    item(
        "every file begins with its licence", "tests/contract/test_layers.py::test_every_file_begins_with_its_licence"
    ),
    item(
        "the documentation builds without warnings",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
]


# --- set-up and configs -----------------------------------------------------------------------------------------------


def test_the_hooks_of_pre_commit_run_tools_that_are_installed():
    config = yaml.safe_load((PARENT_DIR / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {hook["entry"].split()[0] for hook in hooks} == {
        f".venv/bin/{name}" for name in ("ruff", "mypy", "lint-imports")
    }


def test_there_are_three_kinds_of_server():
    assert all(
        (PARENT_DIR / kind / name).is_dir()
        for kind, name in zip(KINDS, ("openai_model", "simple_weather", "simple_agent"), strict=True)
    )


def test_the_simple_agent_is_configured_as_shown():
    config = yaml.safe_load((PARENT_DIR / AGENT_FILE).read_text())
    block = config["simple_agent"]["responses_api_agents"]["simple_agent"]
    assert block["entrypoint"] == "app.py"
    assert block["resources_server"] == {"type": "resources_servers", "name": "???"}
    assert block["model_server"]["type"] == "responses_api_models"


def test_the_config_class_of_the_simple_agent_has_two_references():
    fields = SimpleAgentConfig.model_fields
    assert fields["resources_server"].annotation is ResourcesServerRef
    assert fields["model_server"].annotation is ModelServerRef


def test_git_ignores_what_holds_keys():
    assert subprocess.run(["git", "check-ignore", "-q", "env.yaml"], cwd=PARENT_DIR, check=False).returncode == 0


def test_config_paths_may_be_kept_in_env_yaml(run, tmp_path):
    paths = "".join(f"- {path}\n" for path in (AGENT_FILE, MODEL, WEATHER))
    (tmp_path / "env.yaml").write_text(f"{POLICY}simple_weather_config_paths:\n{paths}")
    words = ("+config_paths=${simple_weather_config_paths}", f"+simple_agent.{REFERENCE}=simple_weather")
    said = run(tmp_path, "ng_dump_config", *words)
    config = yaml.safe_load(said.out)
    agent = config["simple_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["resources_server"]["name"] == "simple_weather"
    assert config["policy_model_name"] == "gpt-4.1"


def test_every_server_has_a_test():
    folders = [path.parent for kind in KINDS for path in (PARENT_DIR / kind).glob("*/app.py")]
    assert [str(folder) for folder in folders if not list(folder.glob("tests/test_*.py"))] == []


# --- the weather example ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Project]:
    """Servers started by the first command of the how-to."""
    words = (f"+config_paths=[{MODEL},{WEATHER}]", f"+simple_weather_simple_agent.{REFERENCE}=simple_weather")
    with ng_run(tmp_path_factory.mktemp("project"), *words) as project:
        yield project


def test_the_weather_example_starts_as_shown(running):
    assert "All 3 / 3 servers ready!" in running.started
    assert "http://127.0.0.1:" in running.started


@pytest.fixture
def client(running, monkeypatch) -> ServerClient:
    monkeypatch.setattr("nemo_gym.global_config._GLOBAL_CONFIG_DICT", None)
    monkeypatch.setattr(sys, "argv", ["client.py"])
    monkeypatch.setenv("NEMO_GYM_RUN_TOKEN_DIR", str(running.tokens))
    monkeypatch.chdir(running.folder)
    return ServerClient.load_from_global_config()


def test_a_server_is_posted_to_by_name(client):
    async def ask() -> dict:
        response = await client.post(
            server_name="simple_weather_simple_agent",
            url_path="/v1/responses",
            json=NeMoGymResponseCreateParamsNonStreaming(input="What should I wear in San Francisco?"),
        )
        return await get_response_json(response)

    assert asyncio.run(ask())["output"][-1]["type"] == "message"


def test_the_client_script_asks_the_only_agent(client, capsys):
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(PARENT_DIR / "responses_api_agents/simple_agent/client.py"), run_name="__main__")
    items = json.loads(capsys.readouterr().out)
    assert [entry["type"] for entry in items] == ["function_call", "function_call_output", "message"]


# --- a server of one's own --------------------------------------------------------------------------------------------


def test_a_new_server_has_what_the_how_to_edits(run, tmp_path):
    made = run(tmp_path, "ng_init_resources_server", "+entrypoint=resources_servers/test_weather")
    assert made.code == 0, made.err
    folder = tmp_path / "resources_servers/test_weather"
    assert (folder / "requirements.txt").read_text().startswith("-e nemo-gym[dev] @ ../../\n")
    classes = {
        node.name: node for node in ast.parse((folder / "app.py").read_text()).body if isinstance(node, ast.ClassDef)
    }
    server = classes["TestWeatherResourcesServer"]
    assert [ast.unparse(base) for base in server.bases] == ["SimpleResourcesServer"]
    assert [ast.unparse(base) for base in classes["TestWeatherResourcesServerConfig"].bases] == [
        "BaseResourcesServerConfig"
    ]
    methods = {node.name for node in server.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert {"setup_webserver", "verify"} <= methods


# --- multineedle ------------------------------------------------------------------------------------------------------


def test_the_servers_of_multineedle_are_planned(run, tmp_path):
    (tmp_path / "env.yaml").write_text(POLICY)
    said = run(tmp_path, "ng_run", f"+config_paths=[{MODEL},{MULTINEEDLE}]", "+dry_run=true")
    assert said.code == 0, said.err
    assert all(
        name in said.out + said.err
        for name in ("multineedle_resources_server", "multineedle_simple_agent", "policy_model")
    )


def test_the_examples_of_multineedle_are_prepared(run, tmp_path):
    for server in ("multineedle", "example_multi_step"):
        shutil.copytree(
            PARENT_DIR / "resources_servers" / server,
            tmp_path / "resources_servers" / server,
            ignore=shutil.ignore_patterns(".venv"),
        )
    words = (f"+config_paths=[{MODEL},{MULTINEEDLE}]", "+output_dirpath=data/multineedle", "+mode=example_validation")
    said = run(tmp_path, "ng_prepare_data", *words)
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "data/multineedle/example_metrics.json").read_text())["Number of examples"] == 5


def test_an_agent_is_pointed_to_an_environment_by_an_override_alone(run, tmp_path):
    (tmp_path / "env.yaml").write_text(POLICY)
    words = (f"+config_paths=[{MODEL},{MULTINEEDLE}]", f"+simple_agent.{REFERENCE}=multineedle")
    said = run(tmp_path, "ng_run", *words, "+dry_run=true")
    assert said.code == 0, said.err
    assert "4 servers: " in said.out
    assert "no loaded config has a server 'simple_agent': taking what else it needs from " in said.err
    assert "no server is called 'multineedle'; it can only mean 'multineedle_resources_server'" in said.err


def test_two_environments_run_from_one_config(run, tmp_path):
    (tmp_path / "env.yaml").write_text(POLICY)
    said = run(tmp_path, "ng_run", f"+config_paths=[{MODEL},{WEATHER},{MULTINEEDLE}]", "+dry_run=true")
    assert said.code == 0, said.err
    assert all(name in said.out + said.err for name in ("simple_weather_simple_agent", "multineedle_simple_agent"))
