# SPDX-License-Identifier: Apache-2.0
"""An agent that gives the model one turn and runs none of the tools it calls: the calls are what is verified.

For environments that compare the next action of a model with an expected one.
"""

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_agents.simple_agent.app import (
    ModelAgent,
    ModelAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyRequest,
    SimpleAgentVerifyResponse,
)


class NonExecutingSimpleAgentConfig(ModelAgentConfig):
    """Config of the agent that runs no tools."""


class NonExecutingSimpleAgentRunRequest(SimpleAgentRunRequest):
    """A task."""


class NonExecutingSimpleAgentVerifyRequest(SimpleAgentVerifyRequest):
    """A task and the one reply to it."""


class NonExecutingSimpleAgentVerifyResponse(SimpleAgentVerifyResponse):
    """A task, the one reply to it and its reward."""


class NonExecutingSimpleAgent(ModelAgent):
    """Seeds a session, asks the model once, has the reply verified."""

    config: NonExecutingSimpleAgentConfig


if __name__ == "__main__":
    NonExecutingSimpleAgent.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = NonExecutingSimpleAgent.run_webserver()
