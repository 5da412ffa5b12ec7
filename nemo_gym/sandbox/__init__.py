# SPDX-License-Identifier: Apache-2.0
"""Sandboxes: places to run untrusted code.

    async with AsyncSandbox({"docker": {}}, SandboxSpec(image="python:3.12")) as sandbox:
        await sandbox.start()
        result = await sandbox.exec("python -c 'print(6 * 7)'")

The docker, apptainer and local providers are included. Add others with `register_provider`, or with an entry point in
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
