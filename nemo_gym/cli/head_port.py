# SPDX-License-Identifier: Apache-2.0
"""Several evaluations on one machine: a run that nobody else needs to find makes way for one that was there before."""

from omegaconf import DictConfig

from nemo_gym._config import ports
from nemo_gym.cli import render
from nemo_gym.global_config import DEFAULT_HEAD_SERVER_PORT, PORT_RANGE_HIGH_KEY_NAME, PORT_RANGE_LOW_KEY_NAME


def make_way(config: DictConfig) -> None:
    """Reserve the port of the head server of `config`: the usual one, or another if that is taken; says so.

    A port that somebody has chosen is left alone.
    """
    head = config.head_server
    if head.port != DEFAULT_HEAD_SERVER_PORT or ports.reserve(head.host, head.port):
        return
    low, high = config[PORT_RANGE_LOW_KEY_NAME], config[PORT_RANGE_HIGH_KEY_NAME]
    head.port = ports.reserve_port(head.host, low, high, list(config.disallowed_ports), tries=50)
    render.note(f"port {DEFAULT_HEAD_SERVER_PORT} is taken by another run; this one's head server uses {head.port}")
