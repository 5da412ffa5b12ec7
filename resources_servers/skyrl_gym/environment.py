# SPDX-License-Identifier: Apache-2.0
"""Makes the environment of a task, in the process of its episode; only there the library is loaded."""

from typing import Any


def make(task: dict[str, Any]) -> Any:
    """Return the environment that the row's `env_class` names."""
    from resources_servers.skyrl_gym.inside import skyrl_environment

    return skyrl_environment.make(task)
