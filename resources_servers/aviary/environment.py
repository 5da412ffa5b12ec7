# SPDX-License-Identifier: Apache-2.0
"""What makes the environment of a row. The library is loaded where that is called: in the process of an episode."""

from typing import Any


def make(task: dict[str, Any]) -> Any:
    """Return the environment of a row."""
    from resources_servers.aviary import played_environment

    return played_environment.make(task)
