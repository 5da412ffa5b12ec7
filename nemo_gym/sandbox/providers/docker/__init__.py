# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Docker containers."""

from nemo_gym.sandbox.providers.docker.provider import (
    DockerCreateConfig as DockerCreateConfig,
    DockerExecConfig as DockerExecConfig,
    DockerProbeConfig as DockerProbeConfig,
    DockerProvider as DockerProvider,
)
