# SPDX-License-Identifier: Apache-2.0
"""The example environments as they are shipped: configs that load under both names, and data that can be made again."""

import importlib
import json
import subprocess
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.dataset_metrics import find_differences, measure
from nemo_gym._data.text_lengths import load_tokenizer
from nemo_gym._servers.launching.launch import server_folder
from nemo_gym._servers.processes.entrypoint import load_server_class
from nemo_gym._util.jsonl_files import dumps_line, read_rows
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
from nemo_gym.server_utils import SimpleServer
from scripts.generate_example_data import EXAMPLES, play, read_instances

SERVERS = Path(PARENT_DIR) / "resources_servers"
INSTANCES = {
    "example_single_tool_call": "example_single_tool_call",
    "simple_weather": "simple_weather",
    "example_multi_step": "example_multi_step_resources_server",
    "multineedle": "multineedle_resources_server",
    "example_session_state_mgmt": "example_session_state_mgmt_resources_server",
    "stateful_counter": "stateful_counter_resources_server",
    "example_mcp_weather": "example_mcp_weather",
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
    "workspace_tasks": "workspace_tasks",
    "xlam_fc": "xlam_fc",
}
# Their rollouts are recorded ones of the local model, which no script plays again.
RECORDED = (
    "calendar",
    "code_gen",
    "equivalence_llm_judge",
    "instruction_following",
    "math_advanced_calculations",
    "math_with_code",
    "math_with_judge",
    "mcqa",
    "reasoning_gym",
    "string_match",
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


@pytest.mark.parametrize("folder", INSTANCES)
def test_rollouts_are_a_file_of_their_own_that_a_run_may_replace(folder):
    data = SERVERS / folder / "data"
    assert not (data / "example_rollouts.jsonl").is_symlink()
    if (data / "example.jsonl").is_symlink():
        original = (data / "example.jsonl").resolve().with_name("example_rollouts.jsonl")
        assert (data / "example_rollouts.jsonl").read_bytes() == original.read_bytes()
    written = [f"example_rollouts_{what}" for what in ("materialized_inputs.jsonl", "failures.jsonl", "run.json")]
    paths = [str(data / name) for name in (*written, "example_rollouts_aggregate_metrics.json")]
    ignored = subprocess.run(["git", "check-ignore", *paths], cwd=PARENT_DIR, check=False, stdout=subprocess.PIPE)
    assert ignored.stdout.decode().split() == paths


def shipped_datasets():
    """The datasets of all configs that are shipped, those of environments too."""
    root = Path(PARENT_DIR)
    for config in sorted([*root.glob("resources_servers/*/configs/*.yaml"), *root.glob("environments/*/config.yaml")]):
        for instance in read_instances(config):
            for dataset in instance.fields.get("datasets", []):
                yield pytest.param(dataset, id=f"{config.relative_to(root)}-{dataset['name']}")


@pytest.mark.filterwarnings("ignore:dataset .*deprecated:DeprecationWarning")
@pytest.mark.parametrize("fields", list(shipped_datasets()))
def test_a_dataset_is_shipped_with_its_metrics_or_names_the_script_that_writes_it(fields):
    dataset = DatasetConfig.model_validate(fields)
    rows = Path(PARENT_DIR) / dataset.jsonl_fpath
    if dataset.prepare_script is not None:
        assert (Path(PARENT_DIR) / dataset.prepare_script).is_file()
        return
    assert rows.stat().st_size < 1_000_000
    if rows.is_relative_to(SERVERS):
        metrics = json.loads(rows.with_name(f"{rows.stem}_metrics.json").read_text())
        measured = measure(read_rows(rows), repeats=dataset.num_repeats, count_tokens=load_tokenizer())
        assert find_differences(metrics, measured) == []


@pytest.mark.parametrize(
    ("folder", "split", "places"),
    [
        (
            "example_multi_step",
            "train",
            {
                "gitlab_identifier": ("example_multi_step", "0.0.1", "example_multi_step/train.jsonl"),
                "huggingface_identifier": ("nvidia/Nemotron-RL-instruction_following", "instruction_following.jsonl"),
            },
        ),
        (
            "example_multi_step",
            "validation",
            {
                "gitlab_identifier": ("example_multi_step", "0.0.1", "example_multi_step/validation.jsonl"),
                "huggingface_identifier": ("nvidia/Nemotron-RL-instruction_following", "if_validation.jsonl"),
            },
        ),
        ("multineedle", "train", {"gitlab_identifier": ("multineedle", "0.0.1", "multineedle/train.jsonl")}),
        ("multineedle", "validation", {"gitlab_identifier": ("multineedle", "0.0.1", "multineedle/validation.jsonl")}),
        (
            "instruction_following",
            "train",
            {"huggingface_identifier": ("nvidia/Nemotron-RL-instruction_following", "instruction_following.jsonl")},
        ),
        ("mcqa", "train", {"huggingface_identifier": ("nvidia/Nemotron-RL-knowledge-mcqa",)}),
    ],
)
def test_a_dataset_has_the_identifiers_that_are_documented(folder, split, places):
    _, agent = read_instances(SERVERS / folder / "configs" / f"{folder}.yaml")
    (dataset,) = [one for one in agent.fields["datasets"] if one["type"] == split]
    found = {key: tuple(value.values()) for key, value in dataset.items() if key.endswith("_identifier")}
    assert found == places
    assert dataset["license"] == "Apache 2.0"
    assert dataset["jsonl_fpath"] == f"resources_servers/{folder}/data/{split}.jsonl"


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
