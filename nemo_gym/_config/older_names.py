# SPDX-License-Identifier: Apache-2.0
"""Names of an earlier age: agents of 2025 call the model under test `openai_model`, today's `policy_model`."""

import logging
from typing import Any

logger = logging.getLogger(__name__)

OLDER_MODEL, POLICY_MODEL = "openai_model", "policy_model"


def with_current_names(values: dict[str, Any]) -> dict[str, Any]:
    """`values`, in which references to a missing `openai_model` lead to the `policy_model` that is there."""
    if OLDER_MODEL in values or POLICY_MODEL not in values:
        return values
    return {key: _renamed(value, key) for key, value in values.items()}


def _renamed(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        if value.get("type") == "responses_api_models" and value.get("name") == OLDER_MODEL:
            logger.info("%s.name: %r is the older name of %r", path, OLDER_MODEL, POLICY_MODEL)
            return {**value, "name": POLICY_MODEL}
        return {key: _renamed(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return value
