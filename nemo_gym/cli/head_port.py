# SPDX-License-Identifier: Apache-2.0
"""Several evaluations on one machine: a run that nobody else needs to find makes way for one that was there before."""

import socket

from omegaconf import DictConfig

from nemo_gym.cli import render
from nemo_gym.global_config import DEFAULT_HEAD_SERVER_PORT, find_open_port


def make_way(config: DictConfig) -> None:
    """Give the head server of `config` another port if it has the usual one and that is taken; says so."""
    head = config.head_server
    if head.port != DEFAULT_HEAD_SERVER_PORT or _is_free(head.host, head.port):
        return
    head.port = find_open_port(list(config.disallowed_ports))
    render.note(f"port {DEFAULT_HEAD_SERVER_PORT} is taken by another run; this one's head server uses {head.port}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
