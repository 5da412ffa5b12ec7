# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import GymError
from nemo_gym.sandbox import SandboxCreateError, SandboxSpec, SandboxStatus, resolve_provider_config
from nemo_gym.sandbox.providers import registry
from nemo_gym.sandbox.providers.docker import DockerProvider

SERVICES = ["daytona", "ecs_fargate", "enroot", "opensandbox", "openshell"]


class Own:
    name = "own"

    def __init__(self, url: str = "") -> None:
        self.url = url


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def installed(monkeypatch):
    """Pretend that packages with these entry points are installed."""

    def install(**entries: str) -> None:
        found = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in entries.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found if group == found[0].group else [])

    return install


def test_every_name_is_listed_and_has_a_class_though_no_service_is_there():
    assert registry.list_providers() == sorted(["apptainer", "docker", "local", *SERVICES])
    assert [registry.get_provider_class(name).name for name in registry.list_providers()] == registry.list_providers()


def test_a_provider_is_made_from_its_name_and_settings(docker):
    assert isinstance(registry.create_provider({"docker": {"create": {"network": "none"}}}), DockerProvider)
    assert isinstance(registry.create_provider(OmegaConf.create({"docker": {"exec": {}}})), DockerProvider)
    assert registry.get_provider_class("docker") is DockerProvider


def test_a_registered_provider_is_there_like_the_others():
    registry.register_provider("own", Own)
    assert "own" in registry.list_providers()
    assert registry.create_provider({"own": {"url": "u"}}).url == "u"


@pytest.mark.parametrize("name", ["own", "docker", "daytona"])
def test_a_name_that_is_taken_is_only_given_away_on_demand(name):
    registry.register_provider("own", dict)
    with pytest.raises(ValueError, match=rf"sandbox provider '{name}' already exists\nhint: .*override=True"):
        registry.register_provider(name, Own)
    registry.register_provider(name, Own, override=True)
    assert isinstance(registry.create_provider({name: None}), Own)


def test_an_installed_package_brings_a_provider_by_an_entry_point(installed):
    installed(elsewhere=f"{__name__}:Own", docker=f"{__name__}:Own", daytona=f"{__name__}:Own")
    assert "elsewhere" in registry.list_providers()
    assert registry.get_provider_class("elsewhere").__name__ == "Own"
    assert registry.get_provider_class("docker") is DockerProvider
    assert registry.get_provider_class("daytona").__name__ == "Own"
    assert resolve_provider_config("elsewhere") == {"elsewhere": {}}
    registry.register_provider("elsewhere", dict)
    assert registry.get_provider_class("elsewhere") is dict


def test_an_entry_point_that_cannot_be_loaded_says_whose_it_is(installed):
    installed(broken="no.such.module:Provider")
    with pytest.raises(GymError, match=r"'broken' of an installed package .*no\.such\.module(.|\n)*hint: install what"):
        registry.get_provider_class("broken")


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_that_is_not_there_takes_settings_and_says_what_to_install(name, tmp_path):
    provider = registry.create_provider({name: {"connection": {"domain": "x"}}})
    assert provider.settings == {"connection": {"domain": "x"}}
    with pytest.raises(SandboxCreateError, match=rf"with '{name}'(.|\n)*hint: install a package with the entry point"):
        await provider.create(SandboxSpec(image="x"))
    handle = object()
    assert await provider.status(handle) is SandboxStatus.UNKNOWN
    for use in (
        provider.exec(handle, "x"),
        provider.upload_file(handle, tmp_path, "x"),
        provider.download_file(handle, "x", tmp_path),
    ):
        with pytest.raises(SandboxCreateError):
            await use
    await provider.close(handle)
    await provider.aclose()


def test_a_misspelt_name_suggests_the_nearest():
    with pytest.raises(SandboxCreateError, match=r"Did you mean 'docker'\?"):
        registry.create_provider({"dockr": {}})


def test_settings_that_the_provider_does_not_know_are_named():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'imgae'.*\nit accepts: exec, create, probe"):
        registry.create_provider({"docker": {"imgae": "x"}})


@pytest.mark.parametrize("settings", ["x", ["create"], 3])
def test_settings_that_are_no_mapping_are_a_type_error(settings):
    with pytest.raises(TypeError, match=r"settings of provider 'docker' in .* must be a mapping"):
        registry.create_provider({"docker": settings})


@pytest.mark.parametrize("config", [{}, {"docker": {}, "local": {}}, "docker", None])
def test_anything_but_one_provider_is_refused(config):
    with pytest.raises(ValueError, match="exactly one provider"):
        registry.create_provider(config)


@pytest.mark.parametrize("name", ["", None])
def test_a_provider_needs_a_name(name):
    with pytest.raises(GymError, match="must be text"):
        registry.register_provider(name, Own)


def test_importing_the_package_loads_no_provider():
    code = "import sys, nemo_gym.sandbox; print([m for m in sys.modules if m.startswith('nemo_gym.sandbox.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "base" in loaded
    assert not any(name in loaded for name in ("docker", "apptainer", "local"))
