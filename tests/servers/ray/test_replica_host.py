# SPDX-License-Identifier: Apache-2.0
"""What a node checks before it runs a replica. One that runs is in `tests/servers/ray/test_replica_actor.py`."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from omegaconf import OmegaConf

from nemo_gym._servers.ray.replica_host import _bind, _require_no_capture, _require_reachable_launcher
from nemo_gym.errors import ConfigError

TASK = {"launcher_address": "10.0.0.1", "launcher_hosts": {"policy_model": "0.0.0.0", "agent": "10.0.0.1"}}


def config_with(host: str, port: int = 1):
    return OmegaConf.create(
        {"head_server": {"host": host, "port": port}, "port_range_low": 24_000, "port_range_high": 32_000}
    )


def test_a_node_that_cannot_reach_the_launching_machine_says_which_setting_helps():
    with pytest.raises(ConfigError) as caught:
        _require_reachable_launcher(config_with("127.0.0.1"), TASK, is_same_machine=False)
    for part in ("head_server (127.0.0.1)", "policy_model (0.0.0.0)", "hint: `++default_host=10.0.0.1`"):
        assert part in str(caught.value)
    assert "agent" not in str(caught.value)


def test_a_head_server_that_does_not_answer_is_named():
    with pytest.raises(ConfigError, match=r"the head server at 127.0.0.1:1 cannot be reached from here: .*refused"):
        _require_reachable_launcher(config_with("127.0.0.1"), TASK, is_same_machine=True)


def test_any_answer_of_the_head_server_will_do():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # says 501 to everything
        server.timeout = 10
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        _require_reachable_launcher(config_with("127.0.0.1", server.server_address[1]), TASK, is_same_machine=True)
        thread.join()


def test_calls_of_a_model_that_nobody_would_find_again_are_not_captured_in_silence():
    config = OmegaConf.create({"observability_enabled": True})
    with pytest.raises(ConfigError, match=r"'policy_model'.*observability_enabled(.|\n)*hint: keep"):
        _require_no_capture(config, {"server": "policy_model", "server_type": "responses_api_models"})
    _require_no_capture(config, {"server": "counter", "server_type": "resources_servers"})
    _require_no_capture(OmegaConf.create({}), {"server": "policy_model", "server_type": "responses_api_models"})


@pytest.mark.parametrize(
    ("asked", "is_same_machine", "bound"),
    [("127.0.0.1", True, "127.0.0.1"), ("127.0.0.2", False, "127.0.0.1"), ("0.0.0.0", False, "0.0.0.0")],
)
def test_a_replica_listens_on_the_address_of_its_node_unless_that_is_the_launching_machine(
    asked, is_same_machine, bound
):
    block = OmegaConf.create({"host": asked, "port": 1})
    with _bind(config_with("127.0.0.1"), block, "127.0.0.1", is_same_machine) as sock:
        assert (block.host, block.port) == (bound, sock.getsockname()[1])
