# SPDX-License-Identifier: Apache-2.0
import importlib
import subprocess
import sys

import pytest

SURFACE = {
    "nemo_gym.sandbox": (
        "AsyncSandbox Sandbox SandboxSpec SandboxResources SandboxExecResult SandboxStatus SandboxEndpoint "
        "SandboxHandle SandboxCreateError register_provider create_provider get_provider_class list_providers "
        "resolve_provider_config resolve_provider_metadata rewrite_image"
    ),
    "nemo_gym.sandbox.config": "resolve_provider_config resolve_provider_metadata",
    "nemo_gym.sandbox.utils": "rewrite_image",
    "nemo_gym.sandbox.providers.apptainer": "ApptainerProvider",
    "nemo_gym.sandbox.providers.apptainer.provider": "ApptainerProvider",
    "nemo_gym.sandbox.providers.docker": "DockerProvider DockerCreateConfig",
    "nemo_gym.sandbox.providers.base": "SandboxCreateError SandboxExecResult",
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in SURFACE.items() for name in names.split()]
)
def test_the_name_can_be_imported_from_where_others_import_it(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_importing_the_package_loads_no_provider():
    code = (
        "import sys, nemo_gym.sandbox; print([m for m in sys.modules if m.startswith('nemo_gym.sandbox.providers.')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "base" in loaded
    assert not any(name in loaded for name in ("docker", "apptainer", "local"))
