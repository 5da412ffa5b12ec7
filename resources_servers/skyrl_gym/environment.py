# SPDX-License-Identifier: Apache-2.0
"""Make the environment of a task. This runs in the episode's process, the only place that loads the library."""

from typing import Any


def make(task: dict[str, Any]) -> Any:
    """Return the environment named by the row's `env_class`."""
    from resources_servers.skyrl_gym.inside import skyrl_environment

    return skyrl_environment.make(task)
