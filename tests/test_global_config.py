# SPDX-License-Identifier: Apache-2.0
"""The process-wide config: where it is read from, how children get it, and that scripts keep their own arguments."""

import logging
import os
import socket
import sys

import pytest
from omegaconf import OmegaConf

import nemo_gym
from nemo_gym import global_config
from nemo_gym.config_types import maybe_get_server_instance_config
from nemo_gym.errors import (
    AlmostServerError,
    ConfigError,
    ConfigMissingValuesError,
    ConfigPathNotFoundError,
    NoServerInstancesError,
)
from nemo_gym.global_config import (
    NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME,
    NEMO_GYM_RESERVED_TOP_LEVEL_KEYS,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    find_open_port,
    format_almost_server_warning,
    get_first_server_config_dict,
    get_global_config_dict,
    get_hf_token,
    maybe_get_global_config_dict,
    set_global_config_dict,
)

SERVER = {"weather": {"resources_servers": {"weather": {"entrypoint": "app.py", "domain": "agent"}}}}
NO_MODEL = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT


@pytest.fixture(autouse=True)
def process(monkeypatch, tmp_path):
    """A process of its own: no config yet, an empty folder, no arguments, nothing handed down."""
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ng_run"])
    for variable in ("NEMO_GYM_CONFIG_DICT", "NEMO_GYM_CONFIG_FILE", "NEMO_GYM_EXTRA_ROOTS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", "")


def arguments(monkeypatch, *tokens, program="train.py"):
    monkeypatch.setattr(sys, "argv", [program, *tokens])


def parse(**settings):
    return GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(offline=True, **settings))


def test_command_line_env_yaml_and_files_make_the_config(monkeypatch, tmp_path):
    (tmp_path / "env.yaml").write_text("b: env\nc: env\npaths: [some.yaml]\n")
    (tmp_path / "some.yaml").write_text("a: file\nb: file\nc: file\n")
    arguments(monkeypatch, "+config_paths=${paths}", "++c=cli")
    config = parse()
    assert (config.a, config.b, config.c) == ("file", "env", "cli")
    assert config.config_paths == ["some.yaml"]


def test_parsing_writes_nothing(monkeypatch, tmp_path):
    arguments(monkeypatch, "+a=1", "+policy_api_key=secret")
    GlobalConfigDictParser().parse()
    assert list(tmp_path.iterdir()) == []


def test_extra_roots_are_searched_first(monkeypatch, tmp_path):
    for name in ("extra", "."):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "some.yaml").write_text(f"a: {name!r}\n")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))
    arguments(monkeypatch, "+config_paths=[some.yaml]")
    assert parse().a == "extra"


def test_env_yaml_is_that_of_the_current_folder_or_of_its_project(monkeypatch, tmp_path):
    for folder in ("installed", "extra", "project/notes/today", "project/resources_servers/shop/data", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("installed", "extra", "project"):
        (tmp_path / folder / "env.yaml").write_text(f"a: {folder}\n")
    (tmp_path / "project" / "resources_servers" / "shop" / "pyproject.toml").touch()
    monkeypatch.setattr(nemo_gym, "PARENT_DIR", tmp_path / "installed")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))

    def read_in(folder):
        monkeypatch.chdir(tmp_path / folder)
        return parse().get("a")

    assert read_in("elsewhere") is None
    for folder in ("project", "project/notes/today", "project/resources_servers/shop/data"):
        assert read_in(folder) == "project"
    (tmp_path / "project" / "notes" / "env.yaml").write_text("a: notes\n")
    assert read_in("project/notes") == "notes"
    assert read_in("project/notes/today") == "project"


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "responses_api_agents"])
def test_a_project_is_known_by_its_repository_its_package_or_its_servers(monkeypatch, tmp_path, mark):
    (tmp_path / "env.yaml").write_text("a: 1\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert "a" not in parse()
    (tmp_path / mark).mkdir()
    assert parse().a == 1


def test_an_env_yaml_can_be_given_or_left_out(monkeypatch, tmp_path):
    (tmp_path / "env.yaml").write_text("a: 1\n")
    (tmp_path / "other.yaml").write_text("a: 2\n")
    assert parse().a == 1
    assert parse(dotenv_path=tmp_path / "other.yaml").a == 2
    assert "a" not in parse(dotenv_path=tmp_path / "absent.yaml")
    assert "a" not in parse(skip_load_from_dotenv=True)


def test_without_environment_only_the_given_values_count(monkeypatch, tmp_path):
    (tmp_path / "env.yaml").write_text("a: 1\n")
    arguments(monkeypatch, "+b=1")
    config = GlobalConfigDictParser().parse_no_environment(OmegaConf.create({"c": 1}))
    assert "a" not in config
    assert "b" not in config
    assert config.c == 1


def test_no_model_values_let_a_config_resolve_without_a_model():
    values = {"m": {"responses_api_models": {"x": {"entrypoint": "app.py", "api_key": "${policy_api_key}"}}}}
    config = parse(initial_global_config_dict=OmegaConf.merge(NO_MODEL, values))
    assert config.m.responses_api_models.x.api_key == ""
    assert config.policy_model.responses_api_models.dummy_model.entrypoint == "app.py"


def test_the_no_model_values_are_not_changed_by_a_parse():
    before = OmegaConf.to_yaml(NO_MODEL)
    parse(initial_global_config_dict=NO_MODEL)
    assert OmegaConf.to_yaml(NO_MODEL) == before


def test_secrets_can_be_hidden():
    config = parse(initial_global_config_dict=OmegaConf.create({"hf_token": "x", "max_tokens": 3}), hide_secrets=True)
    assert (config.hf_token, config.max_tokens) == ("****", 3)


def test_offline_nothing_outside_is_touched(monkeypatch):
    monkeypatch.setattr("socket.gethostbyname", None)
    config = parse(initial_global_config_dict=OmegaConf.create({**SERVER, "use_absolute_ip": True}))
    assert config.weather.resources_servers.weather.port == -1
    assert os.environ["UV_CACHE_DIR"] == ""


def test_a_machine_whose_name_has_no_address_is_reported(monkeypatch):
    def no_address(name):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.gethostname", lambda: "no-such-host.invalid")
    monkeypatch.setattr("socket.gethostbyname", no_address)
    with pytest.raises(ConfigError, match=r"'no-such-host\.invalid', has no address"):
        GlobalConfigDictParser().parse_no_environment(OmegaConf.create({"use_absolute_ip": True}))


def test_online_servers_get_ports_and_uv_its_cache(monkeypatch):
    config = GlobalConfigDictParser().parse_no_environment(OmegaConf.create(SERVER))
    port = config.weather.resources_servers.weather.port
    assert 10001 <= port <= 20000
    assert config.disallowed_ports == [11000, port]
    assert os.environ["UV_CACHE_DIR"] == config.uv_cache_dir


def test_a_script_keeps_its_own_arguments(monkeypatch):
    own = ["--foo", "bar", "-k", "tests/x.py::test[a=b]", "~x", "name with=spaces", "x=[unclosed"]
    arguments(monkeypatch, *own, "+ours=1", "head_server.port=1234", program="client.py")
    config = parse()
    assert config.ours == 1
    assert config.head_server.port == 1234


def test_words_that_are_no_overrides_are_reported():
    with pytest.raises(ConfigError) as error:
        parse(overrides=["foo", "+a=[1"])
    assert "'foo'" in str(error.value)
    assert "'+a=[1'" in str(error.value)


def test_overrides_can_delete_keys(tmp_path):
    (tmp_path / "env.yaml").write_text("a: {b: 1, c: 2}\n")
    assert parse(overrides=["~a.b", "+d=1"]).a == {"c": 2}


def test_overrides_that_are_given_take_the_place_of_the_command_line(monkeypatch):
    arguments(monkeypatch, "+a=1", "+b=1")
    config = parse(overrides=["+a=2"])
    assert (config.a, "b" in config) == (2, False)


def test_the_config_is_parsed_once_and_kept(monkeypatch):
    assert maybe_get_global_config_dict() is None
    first = get_global_config_dict(GlobalConfigDictParserConfig(offline=True))
    arguments(monkeypatch, "+a=1")
    assert get_global_config_dict() is first
    assert maybe_get_global_config_dict() is first


def test_setting_the_config_replaces_it(monkeypatch):
    set_global_config_dict(GlobalConfigDictParserConfig(offline=True))
    arguments(monkeypatch, "+a=1")
    set_global_config_dict(GlobalConfigDictParserConfig(offline=True))
    assert get_global_config_dict().a == 1


def test_a_parser_class_can_be_given():
    class Fixed(GlobalConfigDictParser):
        def parse(self, parse_config=None):
            return OmegaConf.create({"fixed": True})

    assert get_global_config_dict(global_config_dict_parser_cls=Fixed).fixed


def test_tests_can_replace_the_config(monkeypatch):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", OmegaConf.create({"hf_token": "t"}))
    assert get_hf_token() == "t"


def test_a_child_takes_the_config_of_its_parent_as_it_is(monkeypatch):
    monkeypatch.setenv(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME, "a: ${b}\nb: ???\nc: 1e-3\n")
    config = get_global_config_dict()
    assert OmegaConf.to_container(config) == {"a": "${b}", "b": "???", "c": 0.001}


def test_a_child_can_be_given_a_file_instead(monkeypatch, tmp_path):
    (tmp_path / "handed.yaml").write_text("a: 1\n")
    monkeypatch.setenv("NEMO_GYM_CONFIG_FILE", str(tmp_path / "handed.yaml"))
    assert get_global_config_dict() == {"a": 1}


def test_a_handed_down_file_that_is_gone_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("NEMO_GYM_CONFIG_FILE", str(tmp_path / "gone.yaml"))
    with pytest.raises(ConfigError, match=r"gone\.yaml.*No such file"):
        get_global_config_dict()


def test_verbose_turns_on_debug_logging(monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setenv(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME, "verbose: true")
    get_global_config_dict()
    assert root.level == logging.DEBUG


def test_the_inner_block_of_a_server_is_found():
    for config in (OmegaConf.create(SERVER), SERVER):
        assert get_first_server_config_dict(config, "weather")["domain"] == "agent"


def test_open_ports_avoid_the_disallowed_ones(monkeypatch):
    monkeypatch.setattr(
        global_config, "_GLOBAL_CONFIG_DICT", OmegaConf.create({"port_range_low": 15200, "port_range_high": 15299})
    )
    port = find_open_port(disallowed_ports=list(range(15200, 15250)))
    assert 15250 <= port <= 15299
    with pytest.raises(RuntimeError, match="no free port"):
        find_open_port(disallowed_ports=list(range(15200, 15300)))


def test_config_files_are_loaded_with_their_includes(tmp_path):
    (tmp_path / "a.yaml").write_text("config_paths: [b.yaml]\nx: 1\n")
    (tmp_path / "b.yaml").write_text("x: 2\n")
    paths, configs = GlobalConfigDictParser().load_extra_config_paths(["a.yaml"])
    assert paths == ["a.yaml", "b.yaml"]
    assert OmegaConf.merge(*configs).x == 1
    with pytest.raises(ConfigPathNotFoundError):
        GlobalConfigDictParser().load_extra_config_paths(["nope.yaml"])


def test_server_instances_are_filtered_from_a_config():
    (instance,) = GlobalConfigDictParser().filter_for_server_instance_configs(OmegaConf.create({**SERVER, "x": {}}))
    assert instance.name == "weather"


def test_a_config_without_servers_cannot_be_run():
    GlobalConfigDictParser().raise_on_no_server_instances(OmegaConf.create(SERVER))
    with pytest.raises(NoServerInstancesError, match=r"loaded config files: a\.yaml"):
        GlobalConfigDictParser().raise_on_no_server_instances(OmegaConf.create({"config_paths": ["a.yaml"]}))


def test_missing_values_and_almost_servers_can_be_checked_one_at_a_time():
    parser = GlobalConfigDictParser()
    with pytest.raises(ConfigMissingValuesError, match=r"a\[0\]\.b"):
        parser.raise_on_missing_values(OmegaConf.create({"a": [{"b": "???"}]}))
    almost = OmegaConf.create({"w": {"resources_servers": {"w": {"entrypoint": "app.py", "domain": "agnet"}}}})
    with pytest.raises(AlmostServerError, match="Did you mean 'agent'"):
        parser.detect_and_report_almost_servers(almost)
    _, error = maybe_get_server_instance_config("w", almost.w)
    assert "'w' looks like a server" in format_almost_server_warning("w", error)


def test_reserved_keys_never_name_a_server():
    assert {"head_server", "config_paths", "_inherit_from", "token_id_capture"} <= NEMO_GYM_RESERVED_TOP_LEVEL_KEYS
    config = OmegaConf.create({"head_server": SERVER["weather"]})
    assert GlobalConfigDictParser().filter_for_server_instance_configs(config) == []


def test_exporters_are_set_up_only_when_one_is_configured(monkeypatch):
    import types

    seen = []
    monkeypatch.setitem(sys.modules, "nemo_gym.exporters", types.SimpleNamespace(setup_exporters=seen.append))
    parser = GlobalConfigDictParser()
    parser.parse_no_environment(OmegaConf.create({"wandb_project": "p"}))
    assert seen == []
    complete = OmegaConf.create({"wandb_project": "p", "wandb_name": "n", "wandb_api_key": "k"})
    parser.parse(GlobalConfigDictParserConfig(initial_global_config_dict=complete, offline=True))
    assert seen == []
    config = parser.parse_no_environment(complete)
    assert seen == [config]
