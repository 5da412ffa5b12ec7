# SPDX-License-Identifier: Apache-2.0
"""Make the environment of a row. This runs in the episode's process, the only place that loads the library."""

from typing import Any


def make(task: dict[str, Any]) -> Any:
    """Return the environment of a row."""
    from resources_servers.aviary import played_environment

    return played_environment.make(task)
