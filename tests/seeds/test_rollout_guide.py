# SPDX-License-Identifier: Apache-2.0
"""The guide to collecting rollouts with the workplace assistant and an endpoint on the command line."""

import json
import runpy
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from nemo_gym import PARENT_DIR
from tests.seeds.items import item
from tests.seeds.serving import MODEL, Project, ng_run

CONFIG = "resources_servers/workplace_assistant/configs/workplace_assistant.yaml"
EXAMPLES = PARENT_DIR / "resources_servers/workplace_assistant/data/example.jsonl"
COMMANDS = ["run", "collect_rollouts", "viewer", "test", "status", "help", "version", "dump_config"]
ROW = {
    "id": 0,
    "responses_create_params": {
        "input": [
            {"role": "system", "content": "Today's date is Thursday, 2026-01-29."},
            {"role": "user", "content": "Send an email to John about the meeting"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "email_send_email",
                "description": "Sends an email to the specified recipient.",
                "parameters": {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in ("recipient", "subject", "body")},
                    "required": ["recipient", "subject", "body"],
                    "additionalProperties": False,
                },
                "strict": False,
            }
        ],
        "parallel_tool_calls": False,
        "temperature": 1.0,
    },
    "ground_truth": [{"name": "company_directory_find_email_address", "arguments": '{"name": "John"}'}],
    "category": "workplace_assistant_email",
    "environment_name": "workplace_assistant",
}

ITEMS = [
    # Quick start
    item(
        "`ng_run` starts the workplace assistant, with the endpoint on the command line",
        "test_the_servers_start_with_the_endpoint_on_the_command_line",
    ),
    item(
        "`policy_base_url`, `policy_api_key` and `policy_model_name` configure the endpoint",
        "test_rollouts_are_collected_as_in_the_quick_start",
    ),
    item("the key is not shown", "test_the_key_on_the_command_line_is_not_shown"),
    item(
        "`ng_collect_rollouts` plays `workplace_assistant_simple_agent`",
        "test_rollouts_are_collected_as_in_the_quick_start",
    ),
    item("the input may be an absolute path", "test_rollouts_are_collected_as_in_the_quick_start"),
    item("`+limit=5` takes five records", "test_rollouts_are_collected_as_in_the_quick_start"),
    item("without a limit all records are processed", "test_without_a_limit_all_records_are_processed"),
    item("`ng_viewer FILE` shows the results", "tests/cli/test_view.py::test_the_older_command_opens_it_too"),
    # Parameters
    item(
        "`limit`, `num_repeats` and `num_samples_in_parallel` are optional",
        "tests/seeds/test_legacy_command_reference.py::test_null_stands_for_a_parameter_that_is_not_given",
    ),
    item("`num_repeats` repeats each example", "test_create_params_are_overridden_and_examples_repeated"),
    item(
        "`num_samples_in_parallel` bounds what runs at once",
        "tests/rollouts/test_dispatch.py::test_no_more_run_than_the_limit_and_rows_are_pulled_one_ahead_at_most",
    ),
    item(
        "`+responses_create_params={temperature: 0.7, max_tokens: 2048}` overrides those of the rows",
        "test_create_params_are_overridden_and_examples_repeated",
    ),
    # Input
    item(
        "a row has id, create params, ground truth, category and environment name",
        "test_example_rows_have_the_documented_fields",
    ),
    item("tools have type, name, description, parameters and strict", "test_example_rows_have_the_documented_fields"),
    item("ground truth is a list of calls with arguments as text", "test_example_rows_have_the_documented_fields"),
    item("a row as the guide shows it is played", "test_the_row_of_the_guide_is_played"),
    item(
        "extra fields of a row are kept",
        "tests/rollouts/test_expand.py::test_a_row_keeps_its_own_fields_and_gets_agent_and_indices",
    ),
    item("tools with `database` or `operation_type` are refused", "test_a_tool_with_extra_fields_is_refused_by_name"),
    item(
        "the agent answers such a request with 422",
        "tests/wire/schema/test_requests.py::test_a_field_that_tools_do_not_have_is_refused_naming_tool_and_field",
        "tests/test_server_utils.py::test_a_body_that_is_not_what_the_server_takes_is_a_422",
    ),
    # Commands and files
    item("the eight commands of the table are there", "test_the_commands_of_the_table_are_there"),
    item(
        "nemo_gym/rollout_collection.py collects rollouts",
        "test_the_files_of_the_list_are_there",
        "tests/test_rollout_collection.py::test_a_collection_writes_its_files_and_returns_what_was_scored",
    ),
    item("the two configs are where the guide says", "test_the_files_of_the_list_are_there"),
    item("example data is in the server's data folder", "test_the_files_of_the_list_are_there"),
    item(
        "training data is generated to data/train.jsonl",
        "test_training_data_has_its_place_in_the_config",
        "tests/environments/test_prepare.py::test_a_split_is_written_and_always_the_same",
    ),
    item(
        "examples/multistep_toolcalling_datagen generates training data of one's own",
        "test_an_example_generates_training_data",
    ),
    # Workflow
    item(
        "the agent loops up to six steps over tools and model",
        "test_the_agent_has_six_steps",
        "responses_api_agents/simple_agent/tests/test_app.py::TestEndOfTheLoop::test_max_steps_ends_the_loop_after_the_tools_ran",
    ),
    item("the response holds the tool calls", "test_rollouts_are_collected_as_in_the_quick_start"),
    item(
        "the server verifies against the ground truth",
        "resources_servers/workplace_assistant/tests/test_app.py::test_the_calls_of_the_task_are_worth_one",
        "resources_servers/workplace_assistant/tests/test_app.py::test_another_end_is_worth_nothing",
    ),
    item("each rollout is a line of the output with its reward", "test_rollouts_are_collected_as_in_the_quick_start"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Project]:
    """The first terminal of the quick start."""
    words = (f"+config_paths=[{MODEL},{CONFIG}]", "+policy_base_url={url}", "+policy_api_key=nvapi-hidden")
    name = "+policy_model_name=openai/gpt-oss-120b"
    with ng_run(tmp_path_factory.mktemp("project"), *words, name, policy_in_env_yaml=False) as project:
        yield project


@pytest.fixture
def collect(running, tell):
    """The second terminal: collect from an input, and give the rows that were written."""

    def collect(source: Path, *words: str) -> list[dict]:
        said = tell(
            *("ng_collect_rollouts", "+agent_name=workplace_assistant_simple_agent", f"+input_jsonl_fpath={source}"),
            *("+output_jsonl_fpath=rollouts_output.jsonl", *words),
        )
        assert said.code == 0, said.err
        return [json.loads(line) for line in (running.folder / "rollouts_output.jsonl").read_text().splitlines()]

    return collect


# --- quick start ------------------------------------------------------------------------------------------------------


def test_the_servers_start_with_the_endpoint_on_the_command_line(running):
    assert "All 3 / 3 servers ready!" in running.started


def test_the_key_on_the_command_line_is_not_shown(running, tell):
    said = tell("ng_dump_config", f"+config_paths=[{MODEL},{CONFIG}]", "+policy_api_key=nvapi-hidden")
    assert "nvapi-hidden" not in running.started + said.out + said.err


def test_rollouts_are_collected_as_in_the_quick_start(collect, tmp_path):
    source = tmp_path / "workplace_assistant_train.jsonl"
    source.write_text(EXAMPLES.read_text() * 2)
    rows = collect(source, "+limit=5")
    assert len(rows) == 5
    for row in rows:
        assert isinstance(row["reward"], float)
        assert {"function_call", "message"} <= {entry["type"] for entry in row["response"]["output"]}


def test_without_a_limit_all_records_are_processed(collect):
    assert len(collect(EXAMPLES)) == len(EXAMPLES.read_text().splitlines())


def test_create_params_are_overridden_and_examples_repeated(collect):
    overrides = "+responses_create_params={temperature: 0.7, max_tokens: 2048}"
    rows = collect(EXAMPLES, "+limit=1", "+num_repeats=4", "+num_samples_in_parallel=10", overrides)
    assert [row["_ng_rollout_index"] for row in sorted(rows, key=lambda row: row["_ng_rollout_index"])] == [0, 1, 2, 3]
    asked = rows[0]["responses_create_params"]
    assert (asked["temperature"], asked["max_output_tokens"]) == (0.7, 2048)


# --- input ------------------------------------------------------------------------------------------------------------


def test_example_rows_have_the_documented_fields():
    for line in EXAMPLES.read_text().splitlines():
        row = json.loads(line)
        assert set(ROW) <= set(row)
        assert {"input", "tools"} <= set(row["responses_create_params"])
        for tool in row["responses_create_params"]["tools"]:
            assert set(tool) == {"type", "name", "description", "parameters", "strict"}
        for call in row["ground_truth"]:
            assert isinstance(json.loads(call["arguments"]), dict)


def test_the_row_of_the_guide_is_played(collect, tmp_path):
    (tmp_path / "input.jsonl").write_text(json.dumps(ROW))
    (row,) = collect(tmp_path / "input.jsonl")
    assert row["response"]["output"][0]["name"] == "email_send_email"


@pytest.mark.parametrize("field", ["database", "operation_type"])
def test_a_tool_with_extra_fields_is_refused_by_name(running, tell, tmp_path, field):
    params = ROW["responses_create_params"]
    tools = [{**params["tools"][0], field: "emails"}]
    (tmp_path / "input.jsonl").write_text(json.dumps({**ROW, "responses_create_params": {**params, "tools": tools}}))
    said = tell(
        *("ng_collect_rollouts", "+agent_name=workplace_assistant_simple_agent", "+output_jsonl_fpath=refused.jsonl"),
        f"+input_jsonl_fpath={tmp_path / 'input.jsonl'}",
    )
    assert said.code != 0
    assert field in said.err


# --- commands, files and workflow -------------------------------------------------------------------------------------


def test_the_commands_of_the_table_are_there():
    installed = {script.name for script in entry_points(group="console_scripts")}
    assert {f"ng_{name}" for name in COMMANDS} <= installed


def test_the_files_of_the_list_are_there():
    paths = [PARENT_DIR / path for path in ("nemo_gym/rollout_collection.py", MODEL, CONFIG)]
    assert all(path.is_file() for path in (*paths, EXAMPLES))


def test_training_data_has_its_place_in_the_config():
    (agent,) = yaml.safe_load((PARENT_DIR / CONFIG).read_text())["workplace_assistant_simple_agent"].values()
    train = next(entry for entry in agent["simple_agent"]["datasets"] if entry["type"] == "train")
    assert train["jsonl_fpath"] == "resources_servers/workplace_assistant/data/train.jsonl"


def test_the_agent_has_six_steps():
    (agent,) = yaml.safe_load((PARENT_DIR / CONFIG).read_text())["workplace_assistant_simple_agent"].values()
    assert agent["simple_agent"]["max_steps"] == 6


def test_an_example_generates_training_data(tmp_path):
    generate = runpy.run_path(str(PARENT_DIR / "examples/multistep_toolcalling_datagen/generate.py"))["main"]
    written = [tmp_path / name for name in ("once.jsonl", "again.jsonl", "other.jsonl")]
    for path, seed in zip(written, ("7", "7", "8"), strict=True):
        generate(["--tasks", "5", "--seed", seed, "--min-calls", "2", "--output", str(path)])
    once, again, other = (path.read_text() for path in written)
    assert once == again != other
    rows = [json.loads(line) for line in once.splitlines()]
    assert len(rows) == 5
    assert all(row.keys() == {*ROW, "world"} and len(row["ground_truth"]) >= 2 for row in rows)
