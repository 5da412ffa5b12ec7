# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym.errors import GymError
from nemo_gym.sandbox import SandboxCreateError
from nemo_gym.sandbox.providers import registry
from nemo_gym.sandbox.providers.docker import DockerProvider


class Own:
    name = "own"

    def __init__(self, url: str = "") -> None:
        self.url = url


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def test_only_what_is_really_there_is_listed():
    assert registry.list_providers() == ["apptainer", "docker", "local"]


def test_a_provider_is_made_from_its_name_and_settings():
    assert isinstance(registry.create_provider({"docker": {"executable": "podman"}}), DockerProvider)
    assert registry.get_provider_class("docker") is DockerProvider


def test_a_registered_provider_is_there_like_the_others():
    registry.register_provider("own", Own)
    assert "own" in registry.list_providers()
    assert registry.create_provider({"own": {"url": "u"}}).url == "u"


def test_registering_replaces_also_what_is_built_in():
    registry.register_provider("docker", Own)
    assert isinstance(registry.create_provider({"docker": {}}), Own)


@pytest.mark.parametrize("name", ["daytona", "ecs_fargate", "enroot", "opensandbox", "openshell"])
def test_a_provider_that_is_not_included_says_so_and_how_to_bring_one(name):
    assert name not in registry.list_providers()
    with pytest.raises(SandboxCreateError, match="not included") as caught:
        registry.create_provider({name: {}})
    assert f'register_provider("{name}"' in str(caught.value)


def test_a_provider_that_is_not_included_can_be_registered():
    registry.register_provider("daytona", Own)
    assert isinstance(registry.create_provider({"daytona": None}), Own)


def test_a_misspelt_name_suggests_the_nearest():
    with pytest.raises(SandboxCreateError, match="did you mean 'docker'"):
        registry.create_provider({"dockr": {}})


def test_settings_that_the_provider_does_not_know_are_named():
    with pytest.raises(GymError, match=r"unexpected keyword argument 'imgae'.*\nit accepts: create, executable"):
        registry.create_provider({"docker": {"imgae": "x"}})


@pytest.mark.parametrize("config", [{}, {"docker": {}, "local": {}}, "docker", None])
def test_anything_but_one_provider_is_refused(config):
    with pytest.raises(GymError, match="one provider in it"):
        registry.create_provider(config)


@pytest.mark.parametrize("name", ["", None])
def test_a_provider_needs_a_name(name):
    with pytest.raises(GymError, match="must be text"):
        registry.register_provider(name, Own)
