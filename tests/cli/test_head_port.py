# SPDX-License-Identifier: Apache-2.0
"""Where the head server of an evaluation listens when another run is there already."""

import socket

import pytest
from omegaconf import OmegaConf

from nemo_gym.cli import head_port
from nemo_gym.cli.head_port import make_way


@pytest.fixture
def taken():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def config(port):
    return OmegaConf.create({"head_server": {"host": "127.0.0.1", "port": port}, "disallowed_ports": [port]})


def test_a_usual_port_that_is_taken_is_left_to_who_has_it(taken, monkeypatch, capsys):
    monkeypatch.setattr(head_port, "DEFAULT_HEAD_SERVER_PORT", taken)
    found = config(taken)
    make_way(found)
    assert found.head_server.port != taken
    assert f"port {taken} is taken by another run; this one's head server uses {found.head_server.port}" in (
        capsys.readouterr().err
    )


def test_a_usual_port_that_is_free_is_kept(unused_tcp_port, monkeypatch):
    monkeypatch.setattr(head_port, "DEFAULT_HEAD_SERVER_PORT", unused_tcp_port)
    found = config(unused_tcp_port)
    make_way(found)
    assert found.head_server.port == unused_tcp_port


def test_a_port_that_somebody_chose_is_never_changed(taken):
    found = config(taken)
    make_way(found)
    assert found.head_server.port == taken
