# SPDX-License-Identifier: Apache-2.0
"""A command refuses what would have no effect; a program that parses a config may hand in what it likes."""

import sys

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.unread_keys import SETTINGS
from nemo_gym.cli.eval.settings import EvalRunConfig
from nemo_gym.cli.settings import CheckedParser, RunConfig
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig


@pytest.mark.parametrize("settings", [EvalRunConfig, RunConfig])
def test_the_usual_settings_are_known_without_loading_every_command(settings):
    names = {field.alias or name for name, field in settings.model_fields.items()}
    assert names <= SETTINGS


def test_a_program_may_hand_in_keys_that_nothing_here_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "+num_repeat=3", "+trainer.steps=4"])
    initial = OmegaConf.create({"trainer_nodes": 2, "limitt": 1})
    given = GlobalConfigDictParserConfig(initial_global_config_dict=initial, offline=True)
    config = GlobalConfigDictParser().parse(given)
    assert (config.num_repeat, config.trainer.steps, config.trainer_nodes, config.limitt) == (3, 4, 2, 1)
    with pytest.raises(ConfigError, match="num_repeat"):
        CheckedParser().parse(given)


def test_a_note_about_a_completed_server_is_shown_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = "responses_api_models.replay_model.script"
    monkeypatch.setattr(sys, "argv", ["gym", f"+policy_model.{path}=x.yaml"])
    config = CheckedParser().parse(GlobalConfigDictParserConfig(offline=True))
    assert config.policy_model.responses_api_models.replay_model.on_miss == "error"
    note = (
        "no loaded config has a server 'policy_model': taking what else it needs from responses_api_models/replay_model"
    )
    assert capsys.readouterr().err.count(note) == 1
