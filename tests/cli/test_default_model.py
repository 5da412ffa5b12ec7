# SPDX-License-Identifier: Apache-2.0
"""Which model plays when a config asks for one and nothing says which."""

import sys

import pytest
from omegaconf import OmegaConf

from nemo_gym.cli import default_model
from nemo_gym.cli.default_model import choose, with_default_model
from nemo_gym.cli.main import run_command
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

AGENT = {
    "responses_api_agents": {"simple_agent": {"model_server": {"type": "responses_api_models", "name": "policy_model"}}}
}
OLDER_AGENT = {
    "responses_api_agents": {"simple_agent": {"model_server": {"type": "responses_api_models", "name": "openai_model"}}}
}
MODEL = {"responses_api_models": {"vllm_model": {"entrypoint": "app.py"}}}
ENVIRONMENT = "+config_paths=[resources_servers/first_steps/configs/first_steps.yaml]"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder, and arguments that are restored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gym"])
    return tmp_path


def resolved(overrides):
    config = GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(overrides=overrides, offline=True))
    return OmegaConf.to_container(config["policy_model"]["responses_api_models"], resolve=True)


@pytest.mark.parametrize(
    ("config", "chosen"),
    [
        ({"agent": AGENT}, "local_model"),
        ({"agent": OLDER_AGENT}, "local_model"),
        ({"agent": AGENT, "policy_base_url": "http://x"}, "openai_model"),
        ({"agent": AGENT, "policy_model_name": "m"}, "openai_model"),
        ({"agent": AGENT, "policy_model_name": ""}, "local_model"),
        ({"agent": AGENT, "policy_model": {"responses_api_models": {"local_model": {"seed": 3}}}}, "local_model"),
        ({"agent": AGENT, "policy_model": MODEL}, None),
        ({"agent": OLDER_AGENT, "openai_model": MODEL}, None),
        ({"agent": AGENT, "policy_model": {"responses_api_models": {"vllm_model": {"model": "m"}}}}, None),
        ({"world": {"resources_servers": {"x": {"entrypoint": "app.py"}}}}, None),
        ({}, None),
    ],
)
def test_the_choice(config, chosen):
    assert choose(config) == chosen


def test_with_no_word_about_a_model_it_is_the_local_one_and_one_line_says_so(folder, capsys):
    assert list(resolved(with_default_model([ENVIRONMENT]))) == ["local_model"]
    notice = capsys.readouterr().err
    assert notice.count("\n") == 1
    assert "using local_model" in notice
    assert "--model-type openai_model --model NAME --model-url URL --model-api-key KEY" in notice
    assert "env.yaml" in notice


def test_an_endpoint_in_env_yaml_is_reached_through_openai_model(folder, capsys):
    (folder / "env.yaml").write_text("policy_base_url: http://x/v1\npolicy_api_key: k\npolicy_model_name: m\n")
    assert resolved(with_default_model([ENVIRONMENT]))["openai_model"]["openai_base_url"] == "http://x/v1"
    notice = capsys.readouterr().err
    assert notice.count("\n") == 1
    assert "using openai_model" in notice
    assert " k" not in notice.replace(" key", "")


@pytest.mark.parametrize(
    "overrides", [[ENVIRONMENT[:-1] + ",responses_api_models/openai_model/configs/openai_model.yaml]"]]
)
def test_a_model_of_a_config_file_is_left_alone_without_a_word(folder, capsys, overrides):
    assert with_default_model(overrides) == overrides
    assert capsys.readouterr().err == ""


def test_a_model_of_an_included_file_or_of_env_yaml_is_left_alone(folder, capsys):
    (folder / "mine.yaml").write_text("config_paths: [responses_api_models/openai_model/configs/openai_model.yaml]\n")
    overrides = [ENVIRONMENT[:-1] + ",mine.yaml]", "++policy_base_url=http://x"]
    assert with_default_model(overrides) == overrides

    (folder / "env.yaml").write_text("policy_model: {responses_api_models: {replay_model: {entrypoint: app.py}}}\n")
    assert with_default_model([ENVIRONMENT]) == [ENVIRONMENT]
    assert capsys.readouterr().err == ""


def test_files_that_env_yaml_names_stay_named(folder):
    (folder / "env.yaml").write_text(
        "mine: [resources_servers/first_steps/configs/first_steps.yaml]\nconfig_paths: ${mine}\n"
    )
    assert list(resolved(with_default_model([]))) == ["local_model"]


def test_settings_of_the_local_model_complete_its_config(folder):
    overrides = [ENVIRONMENT, "++policy_model.responses_api_models.local_model.seed=3"]
    assert resolved(with_default_model(overrides))["local_model"].items() >= {"seed": 3, "entrypoint": "app.py"}.items()


def test_a_config_that_cannot_be_put_together_is_left_to_the_parser(folder, capsys):
    overrides = ["+config_paths=[no_such_file.yaml]"]
    assert with_default_model(overrides) == overrides
    assert capsys.readouterr().err == ""


def test_in_a_tree_without_our_model_servers_the_missing_one_is_reported_with_who_refers_to_it(folder, monkeypatch):
    monkeypatch.setattr(default_model, "component_search_roots", lambda: [folder])
    overrides = [ENVIRONMENT]
    assert with_default_model(overrides) is overrides
    with pytest.raises(ConfigError, match=r"first_steps_simple_agent(.|\n)*policy_model"):
        resolved(overrides)


@pytest.mark.parametrize("command", [("env", "validate"), ("env", "resolve")])
def test_commands_that_only_look_agree_with_those_that_start(folder, capsys, command):
    assert run_command([*command, "--resources-server", "first_steps"]) == 0
    assert "using local_model" in capsys.readouterr().err


def test_a_missing_engine_is_named_with_the_command_that_installs_it(folder, capsys, monkeypatch):
    monkeypatch.setattr(default_model, "find_spec", lambda name: None)
    with_default_model([ENVIRONMENT])
    assert "pip install 'nemo-gym[local]'" in capsys.readouterr().err
