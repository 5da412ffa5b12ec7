# SPDX-License-Identifier: Apache-2.0
"""Providers that are only names here: configs use them, but nothing in this package drives their service or engine.

They take any settings, so that such configs can be read and checked. A provider that makes sandboxes comes from an
installed package with an entry point of the same name, or from `register_provider(..., override=True)`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxHandle, SandboxStatus

ENTRY_POINT_GROUP = "nemo_gym.sandbox_providers"


class ServiceProvider:
    """A provider whose sandboxes this package cannot make itself."""

    name: ClassVar[str]
    service: ClassVar[str]
    """What the sandboxes run on."""
    client: ClassVar[str]
    """How to get the program or library that talks to it."""

    def __init__(self, **settings: Any) -> None:
        """Keep the settings for whoever reads them."""
        self.settings: Mapping[str, Any] = settings

    async def create(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse, and say what is missing."""
        raise SandboxCreateError(
            f"cannot make a sandbox with {self.name!r}: nemo-gym itself does not drive {self.service}, and no "
            f"installed package offers a provider for it.\n"
            f"known: its client comes with {self.client}; a provider is built on that\n"
            f"hint: install a package with the entry point {self.name!r} in group {ENTRY_POINT_GROUP!r}, or call "
            f"`nemo_gym.sandbox.register_provider({self.name!r}, YourProvider, override=True)`; docker, apptainer and "
            "local need neither"
        )

    exec = upload_file = download_file = create

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return unknown, because others make these sandboxes."""
        return SandboxStatus.UNKNOWN

    async def close(self, handle: SandboxHandle) -> None:
        """Do nothing: there is nothing to end."""

    async def aclose(self) -> None:
        """Do nothing: the provider holds nothing."""


SERVICES: dict[str, Any] = {
    name: type("ServiceProvider", (ServiceProvider,), {"name": name, "service": service, "client": client})
    for name, service, client in (
        ("daytona", "the service Daytona", "`pip install daytona`"),
        ("ecs_fargate", "AWS ECS with Fargate", "`pip install boto3`"),
        ("enroot", "the container engine Enroot", "the program `enroot` (github.com/NVIDIA/enroot)"),
        ("opensandbox", "the service OpenSandbox", "`pip install opensandbox`"),
        ("openshell", "the service OpenShell", "`pip install openshell`"),
    )
}
