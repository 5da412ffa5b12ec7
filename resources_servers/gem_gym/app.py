# SPDX-License-Identifier: Apache-2.0
"""GEM's environments (`gem-llm`), played step by step by `gymnasium_agent`: the library decides every reward."""

from nemo_gym.adapters import TextStepServer
from resources_servers.gem_gym import environment


class GemGymResourcesServer(TextStepServer):
    """Runs one GEM environment per session, in its own process; this process never loads the library."""

    PRELOAD = ("gem", "gem.envs.game_env.wordle", "resources_servers.reasoning_gym.inside.reasoning_gym_scoring")
    MEAN_REWARDS_BY = "environment_id"
    make_environment = staticmethod(environment.make)


if __name__ == "__main__":
    GemGymResourcesServer.run_webserver()
