# SPDX-License-Identifier: Apache-2.0
"""What `gym import reasoning_gym:ID` offers."""

from typing import Any

from resources_servers.reasoning_gym.generate_data import generate, list_tasks_by_category


def list_environments() -> list[dict[str, str]]:
    """Return all generators."""
    return [
        {"id": name, "description": category} for category, names in list_tasks_by_category().items() for name in names
    ]


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows of a generator."""
    return list(generate([environment_id], rows, seed, {environment_id: options}))
