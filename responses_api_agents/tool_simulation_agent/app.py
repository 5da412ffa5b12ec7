# SPDX-License-Identifier: Apache-2.0
"""An agent for environments without state: one turn of the model, then the verifier. No session, no cookies, no tools.

The tools of such a task exist only as descriptions; what the model would do with them is what is scored.
"""

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_agents.simple_agent.app import (
    ModelAgent,
    ModelAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyRequest,
    SimpleAgentVerifyResponse,
    task_fields,
)
from responses_api_agents.simple_agent.loop import CookieJar


class ToolSimulationAgentConfig(ModelAgentConfig):
    """Config of the agent whose tools are only described."""


class ToolSimulationAgentRunRequest(SimpleAgentRunRequest):
    """A task."""


class ToolSimulationAgentVerifyRequest(SimpleAgentVerifyRequest):
    """A task and the one reply to it."""


class ToolSimulationAgentVerifyResponse(SimpleAgentVerifyResponse):
    """A task, the one reply to it and its reward."""


class ToolSimulationAgent(ModelAgent):
    """Asks the model once and has the reply verified."""

    config: ToolSimulationAgentConfig

    async def run(self, body: ToolSimulationAgentRunRequest) -> SimpleAgentVerifyResponse:  # type: ignore[override]
        """One rollout: play, verify."""
        task = task_fields(body)
        response = await self._own_response(None, body, CookieJar())
        return await self._verified(task, response, CookieJar())


if __name__ == "__main__":
    ToolSimulationAgent.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = ToolSimulationAgent.run_webserver()
