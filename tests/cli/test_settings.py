# SPDX-License-Identifier: Apache-2.0
"""A command refuses what would have no effect; a program that parses a config may hand in what it likes."""

import socket
import sys

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.unread_keys import SETTINGS
from nemo_gym._servers.http.sockets import bind, prepare_to_listen
from nemo_gym.cli import settings
from nemo_gym.cli.eval.run_settings import EvalRunConfig
from nemo_gym.cli.settings import CheckedParser, RunConfig, reserve_head_port
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig


@pytest.mark.parametrize("config_class", [EvalRunConfig, RunConfig])
def test_the_usual_settings_are_known_without_loading_every_command(config_class):
    names = {field.alias or name for name, field in config_class.model_fields.items()}
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


# --- where the head server of an evaluation listens when another run is there already ---------------------------------


@pytest.fixture
def taken():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def config(port):
    ports = {"disallowed_ports": [port], "port_range_low": 24_000, "port_range_high": 32_000}
    return OmegaConf.create({"head_server": {"host": "127.0.0.1", "port": port}, **ports})


def test_a_usual_port_that_is_taken_is_left_to_who_has_it(taken, monkeypatch, capsys):
    monkeypatch.setattr(settings, "DEFAULT_HEAD_SERVER_PORT", taken)
    found = config(taken)
    reserve_head_port(found)
    assert found.head_server.port != taken
    assert f"port {taken} is taken by another run; this head server uses {found.head_server.port}" in (
        capsys.readouterr().err
    )


def test_a_usual_port_that_is_free_is_kept(unused_tcp_port, monkeypatch):
    monkeypatch.setattr(settings, "DEFAULT_HEAD_SERVER_PORT", unused_tcp_port)
    found = config(unused_tcp_port)
    reserve_head_port(found)
    assert found.head_server.port == unused_tcp_port


def test_two_runs_that_start_together_both_have_a_head_server(unused_tcp_port, monkeypatch):
    monkeypatch.setattr(settings, "DEFAULT_HEAD_SERVER_PORT", unused_tcp_port)
    first, second = config(unused_tcp_port), config(unused_tcp_port)
    reserve_head_port(first)
    reserve_head_port(second)
    with (
        bind("127.0.0.1", first.head_server.port, "first") as one,
        bind("127.0.0.1", second.head_server.port, "second") as other,
    ):
        one.listen()
        other.listen()
    assert first.head_server.port == unused_tcp_port != second.head_server.port


def test_connections_of_a_run_before_do_not_take_the_port(unused_tcp_port, monkeypatch):
    monkeypatch.setattr(settings, "DEFAULT_HEAD_SERVER_PORT", unused_tcp_port)
    with bind("127.0.0.1", unused_tcp_port, "before") as before:
        prepare_to_listen(before)
        before.listen()
        with socket.create_connection(("127.0.0.1", unused_tcp_port)):
            before.accept()[0].close()  # closed by the server first, so that it lingers there
    found = config(unused_tcp_port)
    reserve_head_port(found)
    assert found.head_server.port == unused_tcp_port
    with bind("127.0.0.1", unused_tcp_port, "next") as sock:
        prepare_to_listen(sock)
        sock.listen()


def test_a_port_that_somebody_chose_is_never_changed(taken):
    found = config(taken)
    reserve_head_port(found)
    assert found.head_server.port == taken
