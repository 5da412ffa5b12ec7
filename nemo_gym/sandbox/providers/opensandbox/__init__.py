# SPDX-License-Identifier: Apache-2.0
"""The name of sandboxes in OpenSandbox; see `services`."""

from nemo_gym.sandbox.providers.services import ServiceProvider


class OpenSandboxProvider(ServiceProvider):
    """Reads configs for OpenSandbox."""

    name = "opensandbox"
    service = "the service OpenSandbox"
    client = "`pip install opensandbox`"
