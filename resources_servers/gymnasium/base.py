# SPDX-License-Identifier: Apache-2.0
"""The names of `nemo_gym.step_environments`, where servers written for NeMo Gym look for them."""

from nemo_gym.step_environments import (
    STEP_REQUEST_ID_KEY,
    EnvCloseResponse,
    EnvResetRequest,
    EnvResetResponse,
    EnvStepRequest,
    EnvStepResponse,
    GymnasiumServer,
    SessionState,
    extract_text,
    metadata_of,
    tool_output,
)

__all__ = [
    "STEP_REQUEST_ID_KEY",
    "EnvCloseResponse",
    "EnvResetRequest",
    "EnvResetResponse",
    "EnvStepRequest",
    "EnvStepResponse",
    "GymnasiumServer",
    "SessionState",
    "extract_text",
    "metadata_of",
    "tool_output",
]
