# SPDX-License-Identifier: Apache-2.0
"""Gymnasium environments played with words, step by step, by `gymnasium_agent`."""

from nemo_gym.adapters import TextStepServer
from resources_servers.gymnasium_text import environment


class GymnasiumTextResourcesServer(TextStepServer):
    """Plays each row in the environment named by its `env_id`; thinking is ignored."""

    MEAN_REWARDS_BY = "env_id"
    PRELOAD = ("gymnasium", "gymnasium.envs.toy_text")
    make_environment = staticmethod(environment.make)


if __name__ == "__main__":
    GymnasiumTextResourcesServer.run_webserver()
