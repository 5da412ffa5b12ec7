# SPDX-License-Identifier: Apache-2.0
"""`environments/fix_the_code`: one agent has the tasks and needs no program; each preset of a program has an agent."""

import json

import pytest
from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym.cli.eval.run_settings import EvalRunConfig, choose_input
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

PRESETS = sorted(path.stem for path in PARENT_DIR.glob("responses_api_agents/program_agent/configs/*.yaml"))


@pytest.fixture(scope="module")
def config():
    paths = {"config_paths": ["environments/fix_the_code/config.yaml"]}
    no_model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return GlobalConfigDictParser().parse(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.merge(no_model, paths),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
            offline=True,
        )
    )


def read_agents(config):
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    return {one.name: one for one in instances if one.SERVER_TYPE == "responses_api_agents"}


def test_every_preset_has_an_agent_but_the_one_without_a_command(config):
    programs = {f"fix_the_code_{preset}" for preset in PRESETS if preset != "shell"}
    assert set(read_agents(config)) == {"fix_the_code_simple_agent", *programs}


def test_all_agents_play_in_the_same_server(config):
    blocks = [one.get_inner_run_server_config_dict() for one in read_agents(config).values()]
    assert {block["resources_server"]["name"] for block in blocks} == {"workspace_tasks"}


def test_only_the_agent_that_needs_no_program_has_tasks(config):
    assert [name for name, one in read_agents(config).items() if one.datasets] == ["fix_the_code_simple_agent"]


def test_a_program_that_is_named_plays_these_tasks(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = EvalRunConfig(output_jsonl_fpath="runs/r.jsonl", agent_name="fix_the_code_codex")
    with open(choose_input(settings, config, print)) as file:
        rows = [json.loads(line) for line in file]
    assert [row["agent_ref"]["name"] for row in rows] == ["fix_the_code_codex"] * 5
