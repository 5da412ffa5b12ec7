# SPDX-License-Identifier: Apache-2.0
"""An agent for environments without state: one turn of the model, then the verifier. No session, no cookies, no tools.

The tools of such a task exist only as descriptions; what the model would do with them is what is scored.
"""

from responses_api_agents.simple_agent.app import (
    ModelAgent,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
    task_fields,
)
from responses_api_agents.simple_agent.loop import CookieJar


class ToolSimulationAgent(ModelAgent):
    """Asks the model once and has the reply verified."""

    async def run(self, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:  # type: ignore[override]
        """Run one rollout, and have it verified."""
        task = task_fields(body)
        response = await self._call_own_responses(None, body, CookieJar())
        return await self._verify_response(task, response, CookieJar())


if __name__ == "__main__":
    ToolSimulationAgent.run_webserver()
