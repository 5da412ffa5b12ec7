# SPDX-License-Identifier: Apache-2.0
"""The name of sandboxes in Daytona; see `services`."""

from nemo_gym.sandbox.providers.services import ServiceProvider


class DaytonaProvider(ServiceProvider):
    """Reads configs for Daytona."""

    name = "daytona"
    service = "the service Daytona"
    client = "`pip install daytona`"
