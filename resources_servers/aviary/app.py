# SPDX-License-Identifier: Apache-2.0
"""Aviary's environments: a model acts by calling tools, and every step has a reward.

Only the episode processes load the library, see `played_environment.py`.
"""

from nemo_gym import grading
from nemo_gym.adapters import ToolStepServer
from resources_servers.aviary import environment


class AviaryResourcesServer(ToolStepServer):
    """Plays any environment or task dataset that Aviary can make."""

    MEAN_REWARDS_BY = "environment"
    PRELOAD = ("resources_servers.aviary.played_environment",)
    make_environment = staticmethod(environment.make)

    def find_mistake(self, call: grading.FunctionCall, known: list[str]) -> str | None:
        """Pass all calls to the environment: some environments penalize invalid ones."""
        return None


if __name__ == "__main__":
    AviaryResourcesServer.run_webserver()
