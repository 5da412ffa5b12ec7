# SPDX-License-Identifier: Apache-2.0
"""What is filled in when a config leaves it open, and what a user's own value looks like afterwards."""

import platform
import socket
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.config_parser import Sources, resolve
from nemo_gym._config.defaults import Machine
from nemo_gym._config.port_reservation import find_free_port, reserve_port, take_reserved
from nemo_gym.errors import ConfigError
from tests.config.examples import MODEL, WEATHER


def any_host(host, *rest):
    return find_free_port(*rest)


def online(values, tmp_path, open_port=any_host):
    machine = Machine(tmp_path, tmp_path, tmp_path, own_ip=lambda: "10.0.0.7", open_port=open_port)
    return resolve(Sources(OmegaConf.create({}), OmegaConf.create(values), [tmp_path]), machine).config


def servers(text=WEATHER + MODEL):
    return OmegaConf.to_container(OmegaConf.create(text))


def test_settings_get_their_defaults(tmp_path):
    config = online({}, tmp_path)
    assert "default_host" not in config, "nobody has set it"
    assert config.head_server == {"host": "127.0.0.1", "port": 11000}
    assert (config.port_range_low, config.port_range_high) == (10001, 20000)
    assert config.python_version == platform.python_version()
    assert config.uv_cache_dir == str(tmp_path / "uv")
    assert config.disallowed_ports == [11000]
    assert config.dry_run is False
    assert config.model_endpoint_readiness_timeout_seconds == 600


@pytest.mark.parametrize(
    ("given", "head"),
    [
        ({"port": 1234}, {"host": "127.0.0.1", "port": 1234}),
        ({"host": "0.0.0.0"}, {"host": "0.0.0.0", "port": 11000}),
        ({"host": "h", "port": 1}, {"host": "h", "port": 1}),
    ],
)
def test_a_partial_head_server_is_completed(tmp_path, given, head):
    assert online({"head_server": given}, tmp_path).head_server == head


def test_values_of_the_user_are_kept(tmp_path):
    given = {"python_version": "3.12", "default_host": "h", "uv_cache_dir": "/c", "head_server_deps": ["x"]}
    config = online(given, tmp_path)
    assert {key: config[key] for key in given} == given


def test_dependencies_of_the_head_server_are_those_that_are_installed(tmp_path):
    for dependency in online({}, tmp_path).head_server_deps:
        assert dependency.startswith(("ray[default]==", "openai=="))


def test_every_server_gets_a_host_and_a_port_of_its_own(tmp_path):
    taken_before = []

    def next_port(host, low, high, taken, tries):
        taken_before.append(list(taken))
        return max(taken) + 1

    values = servers()
    values["weather"]["resources_servers"]["weather"]["port"] = 15000
    config = online(values, tmp_path, next_port)
    assert config.weather.resources_servers.weather.port == 15000
    assert config.weather_agent.responses_api_agents.simple_agent.port == 15001
    assert config.policy_model.responses_api_models.openai_model == {
        "entrypoint": "app.py",
        "openai_api_key": "sk-secret",
        "host": "127.0.0.1",
        "port": 15002,
    }
    assert taken_before == [[11000, 15000], [11000, 15000, 15001]]
    assert config.disallowed_ports == [11000, 15000, 15001, 15002]


def test_ports_lie_in_the_range_of_the_config(tmp_path):
    config = online({**servers(), "port_range_low": 15100, "port_range_high": 15140}, tmp_path)
    ports = [port for port in config.disallowed_ports if port != 11000]
    assert len(set(ports)) == 3
    assert all(15100 <= port <= 15140 for port in ports)


def test_no_port_is_probed_when_a_config_is_only_resolved(tmp_path):
    config = resolve(
        Sources(OmegaConf.create({}), OmegaConf.create(servers()), [tmp_path]), Machine(tmp_path, tmp_path, tmp_path)
    ).config
    assert config.weather.resources_servers.weather.port == -1


def test_the_absolute_ip_is_used_when_asked_for(tmp_path):
    config = online({**servers(), "use_absolute_ip": True}, tmp_path)
    assert config.default_host == "10.0.0.7"
    assert config.weather.resources_servers.weather.host == "10.0.0.7"


def test_skip_verification_is_copied_into_agents_that_do_not_say_themselves(tmp_path):
    values = servers()
    values["other"] = {"responses_api_agents": {"a": {"entrypoint": "app.py", "skip_verification": False}}}
    config = online({**values, "skip_verification": True, "skip_verification_reward": 0.5}, tmp_path)
    agent = config.weather_agent.responses_api_agents.simple_agent
    assert (agent.skip_verification, agent.skip_verification_reward) == (True, 0.5)
    assert config.other.responses_api_agents.a.skip_verification is False
    assert "skip_verification" not in config.weather.resources_servers.weather


def test_folders_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = online({"results_dir": "out", "cache_dir": "my/cache", "profiling_results_dirpath": "prof"}, tmp_path)
    assert config.results_dir == str(tmp_path / "out")
    assert config.profiling_results_dirpath == str(tmp_path / "prof")
    assert Path(config.uv_cache_dir) == tmp_path / "my" / "cache" / "uv"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("results_dir", ""),
        ("cache_dir", 3),
        ("port_range_low", "low"),
        ("allow_openai_version_skew", "maybe"),
        ("head_server", 11000),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(tmp_path, key, value):
    with pytest.raises(ConfigError, match=f"'{key}' must be .* but it is {value!r}"):
        online({key: value}, tmp_path)


def test_a_reserved_port_is_nobody_elses_until_its_socket_is_taken_over():
    port = reserve_port("127.0.0.1", 21000, 22000, (), 50)
    with socket.socket() as rival, pytest.raises(OSError, match="in use"):
        rival.bind(("127.0.0.1", port))
    with take_reserved("127.0.0.1", port) as sock:
        assert sock.getsockname() == ("127.0.0.1", port)
    assert take_reserved("127.0.0.1", port) is None


def test_a_range_without_a_free_port_is_reported():
    with pytest.raises(RuntimeError, match=r"found no free port in 10\.\.12"):
        find_free_port(10, 12, {10, 11, 12}, 50)
