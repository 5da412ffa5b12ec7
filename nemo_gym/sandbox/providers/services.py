# SPDX-License-Identifier: Apache-2.0
"""Providers that are only names here: configs carry them, but nothing in this package drives their service or engine.

They take any settings, so that such configs can be read and checked. What makes sandboxes there comes from elsewhere:
an installed package with an entry point of the same name, or `register_provider(..., override=True)`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.registry import ENTRY_POINT_GROUP


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

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Say what is missing."""
        self._refuse()

    async def exec(self, handle: SandboxHandle, command: str | Sequence[str], **options: Any) -> SandboxExecResult:
        """Say what is missing."""
        self._refuse()

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Say what is missing."""
        self._refuse()

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Say what is missing."""
        self._refuse()

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return that nothing is known about sandboxes that others made."""
        return SandboxStatus.UNKNOWN

    async def close(self, handle: SandboxHandle) -> None:
        """Do nothing: there is nothing to end."""

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    def _refuse(self) -> NoReturn:
        raise SandboxCreateError(
            f"cannot make a sandbox with {self.name!r}: nemo-gym itself does not drive {self.service}, and no "
            f"installed package offers a provider for it.\n"
            f"known: its client comes with {self.client}; a provider is built on that\n"
            f"hint: install a package with the entry point {self.name!r} in group {ENTRY_POINT_GROUP!r}, or call "
            f"`nemo_gym.sandbox.register_provider({self.name!r}, YourProvider, override=True)`; docker, apptainer and "
            "local need neither"
        )


class DaytonaProvider(ServiceProvider):
    """Reads configs for Daytona."""

    name = "daytona"
    service = "the service Daytona"
    client = "`pip install daytona`"


class EcsFargateProvider(ServiceProvider):
    """Reads configs for AWS ECS with Fargate."""

    name = "ecs_fargate"
    service = "AWS ECS with Fargate"
    client = "`pip install boto3`"


class EnrootProvider(ServiceProvider):
    """Reads configs for Enroot."""

    name = "enroot"
    service = "the container engine Enroot"
    client = "the program `enroot` (github.com/NVIDIA/enroot)"


class OpenSandboxProvider(ServiceProvider):
    """Reads configs for OpenSandbox."""

    name = "opensandbox"
    service = "the service OpenSandbox"
    client = "`pip install opensandbox`"


class OpenShellProvider(ServiceProvider):
    """Reads configs for OpenShell."""

    name = "openshell"
    service = "the service OpenShell"
    client = "`pip install openshell`"
