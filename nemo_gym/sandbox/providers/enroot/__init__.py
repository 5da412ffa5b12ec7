# SPDX-License-Identifier: Apache-2.0
"""The name of sandboxes in Enroot; see `services`."""

from nemo_gym.sandbox.providers.services import ServiceProvider


class EnrootProvider(ServiceProvider):
    """Reads configs for Enroot."""

    name = "enroot"
    service = "the container engine Enroot"
    client = "the program `enroot` (github.com/NVIDIA/enroot)"
