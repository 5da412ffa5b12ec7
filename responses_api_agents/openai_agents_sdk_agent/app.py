# SPDX-License-Identifier: Apache-2.0
"""An agent of the OpenAI Agents SDK, with the tools of a resources server, over Responses."""

from typing import Any

from agents import Agent, FunctionTool, ModelSettings, OpenAIResponsesModel, RunConfig, Runner
from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError
from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class OpenAIAgentsSDKAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_turns: int = Field(default=50, ge=1)
    """Most turns of the SDK; what the model has said by then is scored."""


class OpenAIAgentsSDKAgent(CodedAgent):
    """Plays an `agents.Agent`."""

    config: OpenAIAgentsSDKAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Let the SDK's runner play. It sends its traces nowhere."""
        agent = Agent(
            name=self.config.name,
            model=OpenAIResponsesModel(rollout.model, rollout.openai()),
            model_settings=ModelSettings(**rollout.sampling),
            tools=[make_tool(tool, rollout) for tool in rollout.tools],
        )
        asked = task["responses_create_params"]["input"]
        try:
            result = await Runner.run(
                agent, asked, max_turns=self.config.max_turns, run_config=RunConfig(tracing_disabled=True)
            )
        except (MaxTurnsExceeded, ModelBehaviorError):
            return None  # the model's doing, which is scored
        return str(result.final_output)


def make_tool(tool: dict[str, Any], rollout: AgentRollout) -> FunctionTool:
    """Return a tool of the task in the form of the SDK."""

    async def call(context: Any, arguments: str) -> str:
        return await rollout.call_tool(tool["name"], arguments)

    return FunctionTool(
        tool["name"], tool.get("description") or "", tool["parameters"], call, strict_json_schema=bool(tool["strict"])
    )


if __name__ == "__main__":
    OpenAIAgentsSDKAgent.run_webserver()
