# SPDX-License-Identifier: Apache-2.0
"""Sandboxes: places to run code that nobody has read yet.

    async with AsyncSandbox({"docker": {}}, SandboxSpec(image="python:3.12")) as sandbox:
        result = await sandbox.exec("python -c 'print(6 * 7)'")

Providers included: docker, apptainer, local. Others come in through `register_provider`.
"""

from nemo_gym.sandbox.api import AsyncSandbox, Sandbox
from nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata
from nemo_gym.sandbox.providers.base import (
    SandboxConfigError,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxNotRunningError,
    SandboxProvider,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SandboxTransferError,
    UnknownProviderError,
)
from nemo_gym.sandbox.providers.registry import (
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
)
from nemo_gym.sandbox.utils import rewrite_image

__all__ = [
    "AsyncSandbox",
    "Sandbox",
    "SandboxConfigError",
    "SandboxCreateError",
    "SandboxEndpoint",
    "SandboxError",
    "SandboxExecResult",
    "SandboxHandle",
    "SandboxNotRunningError",
    "SandboxProvider",
    "SandboxResources",
    "SandboxSpec",
    "SandboxStatus",
    "SandboxTransferError",
    "UnknownProviderError",
    "create_provider",
    "get_provider_class",
    "list_providers",
    "register_provider",
    "resolve_provider_config",
    "resolve_provider_metadata",
    "rewrite_image",
]
