# SPDX-License-Identifier: Apache-2.0
"""Environments of Aviary: a model acts by calling tools, and every step has a reward.

The library is loaded in the processes of the episodes only, see `played_environment.py`.
"""

from nemo_gym import grading
from nemo_gym.adapters import ToolStepServer
from resources_servers.aviary import environment


class AviaryResourcesServer(ToolStepServer):
    """Any environment or dataset of tasks that Aviary can make."""

    MEAN_REWARDS_BY = "environment"
    PRELOAD = ("resources_servers.aviary.played_environment",)
    make_environment = staticmethod(environment.make)

    def find_mistake(self, call: grading.FunctionCall, known: list[str]) -> str | None:
        """Leave all calls to the environment: some take points for those that make no sense."""
        return None


if __name__ == "__main__":
    AviaryResourcesServer.run_webserver()
