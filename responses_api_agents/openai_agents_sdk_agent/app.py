# SPDX-License-Identifier: Apache-2.0
"""An OpenAI Agents SDK agent with the tools of a resources server, over Responses."""

from typing import Any

from agents import Agent, FunctionTool, ModelSettings, OpenAIResponsesModel, RunConfig, Runner
from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError
from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class OpenAIAgentsSDKAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_turns: int = Field(default=50, ge=1)
    """The maximum number of SDK turns; after that, what the model has said is scored."""


class OpenAIAgentsSDKAgent(CodedAgent):
    """Plays an `agents.Agent`."""

    config: OpenAIAgentsSDKAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Let the SDK's runner play, with tracing off."""
        agent = Agent(
            name=self.config.name,
            model=OpenAIResponsesModel(rollout.model, rollout.openai()),
            model_settings=ModelSettings(**rollout.sampling),
            tools=[make_tool(tool, rollout) for tool in rollout.tools],
        )
        given = task["responses_create_params"]["input"]
        try:
            result = await Runner.run(
                agent, given, max_turns=self.config.max_turns, run_config=RunConfig(tracing_disabled=True)
            )
        except (MaxTurnsExceeded, ModelBehaviorError):
            return None  # the model's mistake, which is scored
        return str(result.final_output)


def make_tool(tool: dict[str, Any], rollout: AgentRollout) -> FunctionTool:
    """Return a tool of the task as an SDK tool."""

    async def call(context: Any, arguments: str) -> str:
        return await rollout.call_tool(tool["name"], arguments)

    return FunctionTool(
        tool["name"], tool.get("description") or "", tool["parameters"], call, strict_json_schema=bool(tool["strict"])
    )


if __name__ == "__main__":
    OpenAIAgentsSDKAgent.run_webserver()
