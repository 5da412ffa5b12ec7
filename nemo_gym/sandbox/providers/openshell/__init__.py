# SPDX-License-Identifier: Apache-2.0
"""The name of sandboxes in OpenShell; see `services`."""

from nemo_gym.sandbox.providers.services import ServiceProvider


class OpenShellProvider(ServiceProvider):
    """Reads configs for OpenShell."""

    name = "openshell"
    service = "the service OpenShell"
    client = "`pip install openshell`"
