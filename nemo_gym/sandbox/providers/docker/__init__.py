# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Docker containers."""

from nemo_gym.sandbox.providers.docker.provider import DockerCreateConfig as DockerCreateConfig
from nemo_gym.sandbox.providers.docker.provider import DockerExecConfig as DockerExecConfig
from nemo_gym.sandbox.providers.docker.provider import DockerProbeConfig as DockerProbeConfig
from nemo_gym.sandbox.providers.docker.provider import DockerProvider as DockerProvider
