# SPDX-License-Identifier: Apache-2.0
"""Sandboxes: places to run code that nobody has reviewed.

    async with AsyncSandbox({"docker": {}}, SandboxSpec(image="python:3.12")) as sandbox:
        await sandbox.start()
        result = await sandbox.exec("python -c 'print(6 * 7)'")

The providers docker, apptainer and local are included. Others are added by `register_provider`, or by an entry point of
the group `nemo_gym.sandbox_providers`.
"""

from nemo_gym.sandbox import providers as _providers
from nemo_gym.sandbox.api import AsyncSandbox, Sandbox
from nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata
from nemo_gym.sandbox.providers import *  # noqa: F403  its `__all__` is the list of names
from nemo_gym.sandbox.pty import SandboxPty
from nemo_gym.sandbox.utils import rewrite_image

__all__ = [  # noqa: PLE0604
    *_providers.__all__,
    "AsyncSandbox",
    "Sandbox",
    "SandboxPty",
    "resolve_provider_config",
    "resolve_provider_metadata",
    "rewrite_image",
]
