# SPDX-License-Identifier: Apache-2.0
"""The example environments as they are shipped: configs that load under both names, and data that can be made again."""

import importlib
import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym._data.metrics_file import differences
from nemo_gym._serving.entrypoint import load_server_class
from nemo_gym._util.jsonl import dumps_line, read_rows
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
from nemo_gym.launch import server_folder
from nemo_gym.server_utils import SimpleServer
from scripts.generate_example_data import EXAMPLES, example_metrics, play, read_instances

SERVERS = Path(PARENT_DIR) / "resources_servers"
INSTANCES = {
    "example_single_tool_call": "example_single_tool_call",
    "simple_weather": "simple_weather",
    "example_multi_step": "example_multi_step_resources_server",
    "multineedle": "multineedle_resources_server",
    "example_session_state_mgmt": "example_session_state_mgmt_resources_server",
    "stateful_counter": "stateful_counter_resources_server",
    "first_steps": "first_steps",
    "mcqa": "mcqa",
    "string_match": "string_match",
    "code_gen": "code_gen",
    "comp_coding": "comp_coding",
    "math_with_code": "math_with_code",
    "python_math_exec": "python_math_exec",
    "calendar": "calendar",
    "equivalence_llm_judge": "equivalence_llm_judge",
    "example_tool_call_multireward": "example_tool_call_multireward",
    "instruction_following": "instruction_following",
    "library_judge_math": "library_judge_math",
    "math_advanced_calculations": "math_advanced_calculations",
    "math_with_judge": "math_with_judge",
    "multiverse_math_hard": "multiverse_math_hard",
    "reasoning_gym": "reasoning_gym",
    "structured_outputs": "structured_outputs",
    "workbench": "workbench",
    "workplace_assistant": "workplace_assistant",
    "xlam_fc": "xlam_fc",
}
# Their rollouts are recorded ones of the local model, which no script plays again.
RECORDED = (
    "calendar",
    "code_gen",
    "equivalence_llm_judge",
    "example_tool_call_multireward",
    "instruction_following",
    "math_advanced_calculations",
    "math_with_code",
    "math_with_judge",
    "mcqa",
    "reasoning_gym",
    "string_match",
    "structured_outputs",
    "workplace_assistant",
    "xlam_fc",
)


def parsed(folder):
    no_model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    paths = {"config_paths": [f"resources_servers/{folder}/configs/{folder}.yaml"]}
    return GlobalConfigDictParser().parse(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.merge(no_model, paths),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
            offline=True,
        )
    )


@pytest.mark.parametrize("folder", INSTANCES)
def test_a_config_defines_the_environment_and_an_agent_that_plays_in_it(folder):
    config = parsed(folder)
    servers = {one.name: one for one in GlobalConfigDictParser().filter_for_server_instance_configs(config)}
    assert set(servers) == {INSTANCES[folder], f"{folder}_simple_agent", "policy_model"}

    agent = servers[f"{folder}_simple_agent"].get_inner_run_server_config_dict()
    assert agent["resources_server"] == {"type": "resources_servers", "name": INSTANCES[folder]}
    assert agent["model_server"] == {"type": "responses_api_models", "name": "policy_model"}


@pytest.mark.parametrize("folder", INSTANCES)
def test_a_server_can_be_built_from_its_config(folder):
    config, name = parsed(folder), INSTANCES[folder]
    ((impl, block),) = config[name]["resources_servers"].items()
    server = load_server_class(server_folder("resources_servers", impl), block["entrypoint"], SimpleServer)
    assert server.from_global_config(config, name).config.name == name


@pytest.mark.parametrize("folder", INSTANCES)
def test_a_config_may_name_the_implementation_by_either_name(folder):
    server = load_server_class(server_folder("resources_servers", folder), "app.py", SimpleServer)
    assert issubclass(server, SimpleResourcesServer)


@pytest.mark.parametrize("folder", INSTANCES)
def test_the_artifacts_are_complete(folder):
    data = SERVERS / folder / "data"
    assert len(list(read_rows(data / "example.jsonl"))) == 5
    assert len(list(read_rows(data / "example_rollouts.jsonl"))) == 5
    assert json.loads((data / "example_metrics.json").read_text())["Number of examples"] == 5
    readme = (SERVERS / folder / "README.md").read_text()
    assert all(line in readme for line in ("Code: ", "Data: ", "Dependencies"))
    assert (SERVERS / folder / "requirements.txt").read_text().startswith("-e nemo-gym[dev] @ ../../\n")


@pytest.mark.parametrize("name", [*EXAMPLES, *RECORDED])
def test_the_metrics_are_those_of_the_rows(name):
    instances = read_instances(SERVERS / name / "configs" / f"{name}.yaml")
    shipped = json.loads((SERVERS / name / "data" / "example_metrics.json").read_text())
    assert differences(shipped, json.loads(example_metrics(instances))) == []


@pytest.mark.parametrize("name", EXAMPLES)
async def test_playing_the_rows_again_gives_the_same_rollouts(name):
    generator = importlib.import_module(f"resources_servers.{name}.generate_data")
    instances = read_instances(SERVERS / name / "configs" / f"{name}.yaml")
    rollouts = await play(instances, generator.rows(), generator.solution)
    shipped = (SERVERS / name / "data" / "example_rollouts.jsonl").read_bytes()
    assert b"".join(map(dumps_line, rollouts)) == shipped, "hint: run `python scripts/generate_example_data.py`"


@pytest.mark.parametrize("name", [*EXAMPLES, *RECORDED])
def test_a_rollout_tells_which_task_and_agent_it_is_of(name):
    rollouts = list(read_rows(SERVERS / name / "data" / "example_rollouts.jsonl"))
    assert [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in rollouts] == [(i, 0) for i in range(5)]
    assert {one["agent_ref"]["name"] for one in rollouts} == {f"{name}_simple_agent"}


@pytest.mark.parametrize("name", [*EXAMPLES, *RECORDED])
def test_the_readme_shows_a_row_of_the_data(name):
    block = (SERVERS / name / "README.md").read_text().split("```json\n")[1].split("\n```")[0]
    shown = json.loads(block)
    row = next(iter(read_rows(SERVERS / name / "data" / "example.jsonl")))
    params, shown_params = row.pop("responses_create_params"), shown.pop("responses_create_params")
    assert shown == row
    assert shown_params["input"][-1] == params["input"][-1]
