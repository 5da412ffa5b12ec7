# SPDX-License-Identifier: Apache-2.0
"""An agent that gives the model one turn and runs none of the tools it calls: the calls are what is verified.

For environments that compare the next action of a model with an expected one.
"""

from responses_api_agents.simple_agent.app import ModelAgent


class NonExecutingSimpleAgent(ModelAgent):
    """Seeds a session, asks the model once, has the reply verified."""


if __name__ == "__main__":
    NonExecutingSimpleAgent.run_webserver()
