# SPDX-License-Identifier: Apache-2.0
"""Which Ray cluster a run uses. A real one is joined in `tests/e2e/test_ray.py`."""

import os
import socket
import sys
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from nemo_gym._servers.launching.launch import serve_config
from nemo_gym._servers.ray.cluster import join_or_start_cluster, require_reachable_cluster, run_cluster
from nemo_gym.errors import GymError
from nemo_gym.server_utils import initialize_ray
from tests.servers.launching.test_launch import config as config  # a fixture


def config_with(address: str | None):
    return OmegaConf.create({"ray_head_node_address": address} if address else {})


def refuse(text: str) -> None:
    raise AssertionError(f"nothing is to be said, but: {text}")


@pytest.fixture
def closed_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]  # bound, but nobody listens


@pytest.fixture(autouse=True)
def no_ray_address(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_does_not_answer_is_an_error_with_address_cause_and_hint(closed_port, scheme):
    address = f"{scheme}127.0.0.1:{closed_port}"
    with pytest.raises(GymError) as caught:
        require_reachable_cluster(config_with(address))
    for part in (repr(address), "`ray_head_node_address`", "Connection refused", "\nhint: ", "ray://host:port"):
        assert part in str(caught.value)


@pytest.mark.parametrize("address", ["localhost", "ray://localhost", "localhost:many", "6379", "[::1"])
def test_what_is_no_address_is_an_error_that_says_what_is_one(address):
    with pytest.raises(GymError, match="is not the address of a Ray cluster") as caught:
        require_reachable_cluster(config_with(address))
    assert "\nhint: give host:port" in str(caught.value)


@pytest.mark.parametrize("address", [None, "auto", "anyscale://mine"])
def test_what_only_ray_understands_is_left_to_ray(address):
    require_reachable_cluster(config_with(address))


async def test_a_launch_ends_before_anything_starts_if_the_cluster_does_not_answer(config, closed_port):
    config.ray_head_node_address = f"127.0.0.1:{closed_port}"
    with pytest.raises(GymError, match="cannot be joined"):
        async with serve_config(config, refuse):
            pass


def test_the_named_cluster_is_handed_down_and_ray_is_not_loaded_for_that(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with run_cluster(config_with("head:6379"), ["far"], used_here=False, notice=refuse):
        assert os.environ["RAY_ADDRESS"] == "head:6379"
    assert "RAY_ADDRESS" not in os.environ


def test_the_named_cluster_stands_before_the_one_of_the_users_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "other:6379")
    with run_cluster(config_with("head:6379"), [], used_here=False, notice=refuse):
        assert os.environ["RAY_ADDRESS"] == "head:6379"
    assert os.environ["RAY_ADDRESS"] == "other:6379"


def test_without_a_server_that_uses_it_ray_is_neither_loaded_nor_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with run_cluster(config_with(None), [], used_here=False, notice=refuse):
        assert "RAY_ADDRESS" not in os.environ


def test_without_ray_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("nemo_gym.server_utils.get_global_config_dict", lambda: config_with(None))
    with pytest.raises(GymError, match=r"hint: pip install 'nemo-gym\[ray\]'"):
        initialize_ray()


def fake_ray(monkeypatch, **functions):
    """Stand in for Ray, which takes half a minute to start."""
    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **_: None,
        shutdown=lambda: None,
        get_runtime_context=lambda: SimpleNamespace(gcs_address="here:1234"),
    )
    ray.__dict__.update(functions, __spec__=object())
    monkeypatch.setitem(sys.modules, "ray", ray)


def test_a_cluster_that_refuses_to_be_joined_is_an_error_with_its_words(monkeypatch):
    def init(**_):
        raise RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9.0")

    fake_ray(monkeypatch, init=init)
    with pytest.raises(GymError, match=r"'head:6379'.*cannot be joined: Version mismatch"):
        join_or_start_cluster(config_with("head:6379"))


@pytest.mark.parametrize(
    ("cause", "starts"), [("The current node timed out during startup.", 8), ("the raylet has crashed", 2)]
)
def test_a_cluster_that_is_slow_to_start_is_started_more_often_than_one_that_fails(monkeypatch, cause, starts):
    attempts = []

    def init(**how):
        attempts.append(how["address"])
        raise RuntimeError(cause)

    fake_ray(monkeypatch, init=init)
    monkeypatch.setattr("nemo_gym._servers.ray.cluster.find_missing_permissions", list)
    with pytest.raises(GymError, match="could not be started"):
        join_or_start_cluster(config_with(None))
    assert attempts == ["local"] * starts


def test_for_a_server_that_uses_ray_a_cluster_is_started_named_and_stopped(monkeypatch):
    calls = []
    fake_ray(
        monkeypatch,
        init=lambda **how: calls.append(how["address"]),
        shutdown=lambda: calls.append("stopped"),
    )
    config, said = config_with(None), []
    with run_cluster(config, ["squares"], used_here=False, notice=said.append):
        assert config.ray_head_node_address == os.environ["RAY_ADDRESS"] == "here:1234"
    assert said == ["starting Ray on this machine for squares"]
    assert calls == ["local", "stopped"]


def test_auto_becomes_the_address_of_the_cluster_that_was_found(monkeypatch):
    calls = []
    fake_ray(monkeypatch, init=lambda **how: calls.append(how["address"]))
    with run_cluster(config_with("auto"), [], used_here=False, notice=lambda text: None):
        assert os.environ["RAY_ADDRESS"] == "here:1234"
    assert calls == ["auto"]


def test_a_program_that_has_joined_a_cluster_stays_in_it(monkeypatch):
    fake_ray(
        monkeypatch, is_initialized=lambda: True, init=lambda **_: refuse("joined"), shutdown=lambda: refuse("left")
    )
    with run_cluster(config_with("head:6379"), ["squares"], used_here=True, notice=refuse):
        assert os.environ["RAY_ADDRESS"] == "head:6379"
