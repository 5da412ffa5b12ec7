# SPDX-License-Identifier: Apache-2.0
"""Sandboxes as Apptainer instances."""

from nemo_gym.sandbox.providers.apptainer.provider import (
    ApptainerCreateConfig as ApptainerCreateConfig,
    ApptainerExecConfig as ApptainerExecConfig,
    ApptainerProbeConfig as ApptainerProbeConfig,
    ApptainerProvider as ApptainerProvider,
)
