# SPDX-License-Identifier: Apache-2.0
"""Providers known by name only: configs use them, but this package cannot drive their service or engine.

They accept any settings, so that such configs can be read and checked. A working provider comes from an installed
package with an entry point of the same name, or from `register_provider(..., override=True)`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxHandle, SandboxStatus

ENTRY_POINT_GROUP = "nemo_gym.sandbox_providers"


class ServiceProvider:
    """A provider whose sandboxes this package cannot create."""

    name: ClassVar[str]
    service: ClassVar[str]
    """What the sandboxes run on."""
    client: ClassVar[str]
    """How to get the program or library that talks to it."""

    def __init__(self, **settings: Any) -> None:
        """Keep the settings, whatever they are."""
        self.settings: Mapping[str, Any] = settings

    async def create(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error that says what is missing."""
        raise SandboxCreateError(
            f"cannot create a sandbox with {self.name!r}: nemo-gym itself does not drive {self.service}, and no "
            f"installed package has a provider for it.\n"
            f"known: its client comes with {self.client}; a provider would use that\n"
            f"hint: install a package with the entry point {self.name!r} in group {ENTRY_POINT_GROUP!r}, or call "
            f"`nemo_gym.sandbox.register_provider({self.name!r}, YourProvider, override=True)`; docker, apptainer and "
            "local need neither"
        )

    exec = upload_file = download_file = create

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return unknown: this package does not create these sandboxes."""
        return SandboxStatus.UNKNOWN

    async def close(self, handle: SandboxHandle) -> None:
        """Do nothing: there is nothing to end."""

    async def aclose(self) -> None:
        """Do nothing: the provider holds nothing."""


SERVICES: dict[str, Any] = {
    name: type("ServiceProvider", (ServiceProvider,), {"name": name, "service": service, "client": client})
    for name, service, client in (
        ("daytona", "the Daytona service", "`pip install daytona`"),
        ("ecs_fargate", "AWS ECS with Fargate", "`pip install boto3`"),
        ("enroot", "the Enroot container engine", "the program `enroot` (github.com/NVIDIA/enroot)"),
        ("opensandbox", "the OpenSandbox service", "`pip install opensandbox`"),
        ("openshell", "the OpenShell service", "`pip install openshell`"),
    )
}
