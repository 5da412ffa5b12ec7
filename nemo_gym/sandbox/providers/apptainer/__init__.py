# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Apptainer instances."""

from nemo_gym.sandbox.providers.apptainer.provider import ApptainerCreateConfig as ApptainerCreateConfig
from nemo_gym.sandbox.providers.apptainer.provider import ApptainerExecConfig as ApptainerExecConfig
from nemo_gym.sandbox.providers.apptainer.provider import ApptainerProbeConfig as ApptainerProbeConfig
from nemo_gym.sandbox.providers.apptainer.provider import ApptainerProvider as ApptainerProvider
