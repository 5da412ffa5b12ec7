# SPDX-License-Identifier: Apache-2.0
"""The base of environments that speak reset and step, and the shapes of their requests and replies."""

from resources_servers.gymnasium.base import (
    STEP_REQUEST_ID_KEY,
    EnvCloseResponse,
    EnvResetRequest,
    EnvResetResponse,
    EnvStepRequest,
    EnvStepResponse,
    GymnasiumServer,
    SessionState,
    extract_text,
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
    "tool_output",
]
