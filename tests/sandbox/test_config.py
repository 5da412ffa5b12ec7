# SPDX-License-Identifier: Apache-2.0
import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import GymError
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.sandbox import create_provider, list_providers
from nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata

NAMED = {
    "swe_sandbox": {"docker": {"create": {"network": "none"}}, "default_metadata": {"team": "swe"}},
    "plain": {"apptainer": None},
    "broken": "docker",
    "two": {"docker": {}, "local": {}},
}


def test_a_name_is_looked_up_in_the_named_configs():
    assert resolve_provider_config("swe_sandbox", NAMED) == {"docker": {"create": {"network": "none"}}}


def test_the_name_of_a_provider_stands_for_it_without_settings():
    assert resolve_provider_config("docker", NAMED) == {"docker": {}}
    assert resolve_provider_config("local", None) == {"local": {}}


def test_a_named_config_goes_before_a_provider_of_the_same_name():
    assert resolve_provider_config("docker", {"docker": {"local": {}}}) == {"local": {}}


def test_a_mapping_with_one_provider_is_taken_as_it_is():
    assert resolve_provider_config({"my_own": {"x": 1}}, NAMED) == {"my_own": {"x": 1}}
    assert resolve_provider_config({"docker": None}, NAMED) == {"docker": {}}


def test_a_config_from_omegaconf_becomes_built_in_containers():
    config = OmegaConf.create({"host": "h", "box": {"docker": {"create": {"network": "${host}"}}}})
    resolved = resolve_provider_config("box", config)
    assert resolved == {"docker": {"create": {"network": "h"}}}
    assert type(resolved["docker"]["create"]) is dict


def test_metadata_stands_beside_the_provider():
    assert resolve_provider_metadata("swe_sandbox", NAMED) == {"team": "swe"}
    assert resolve_provider_metadata({"docker": {}, "metadata": {"a": "b"}}, NAMED) == {"a": "b"}
    assert resolve_provider_metadata("plain", NAMED) == {}
    assert resolve_provider_metadata("docker") == {}


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(GymError, match=r"Did you mean 'swe_sandbox'\?\n(.|\n)*hint: "):
        resolve_provider_config("swe_sandbx", NAMED)
    with pytest.raises(ValueError, match=r"Did you mean 'docker'\?\n(.|\n)*sandbox providers: .*docker"):
        resolve_provider_config("dokcer")


def test_an_unknown_name_lists_the_config_blocks_that_describe_a_provider():
    with pytest.raises(ValueError, match="'nowhere' is not defined in the merged config") as refused:
        resolve_provider_config("nowhere", {**NAMED, "model": {"url": "x", "key": "y"}})
    assert "'swe_sandbox'" in str(refused.value)
    assert "'model'" not in str(refused.value)


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("two", "exactly one provider key, found: 'docker', 'local'"),
        ("broken", "'broken' must be a mapping, not str"),
        ({}, "exactly one provider key, found: none"),
        ({"docker": "x"}, "settings of provider 'docker'.* must be a mapping, not str"),
        ("", "a name reference .a non-empty string. or a mapping"),
        (None, "a name reference .a non-empty string. or a mapping"),
    ],
)
def test_what_cannot_be_used_says_why(provider, message):
    with pytest.raises(GymError, match=message):
        resolve_provider_config(provider, NAMED)


def test_metadata_that_is_no_mapping_is_refused():
    with pytest.raises(GymError, match=r"'default_metadata'.*must be a mapping"):
        resolve_provider_metadata({"docker": {}, "default_metadata": "x"})


@pytest.mark.parametrize("name", list_providers())
def test_config_paths_may_name_the_config_of_a_provider(name, tmp_path, monkeypatch, request):
    if name in {"docker", "apptainer"}:
        request.getfixturevalue(name)
    monkeypatch.chdir(tmp_path)
    paths = [f"nemo_gym/sandbox/providers/{name}/configs/{name}.yaml"]
    config = GlobalConfigDictParser().parse_no_environment(OmegaConf.create({"config_paths": paths}))
    assert resolve_provider_metadata("sandbox", config) == {}
    assert create_provider(resolve_provider_config("sandbox", config)).name == name
