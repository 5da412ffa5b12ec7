# SPDX-License-Identifier: Apache-2.0
"""A smolagents ToolCallingAgent with the tools of a resources server, over Chat Completions."""

from typing import Any

from pydantic import Field
from smolagents import LogLevel, OpenAIServerModel, Tool, ToolCallingAgent

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class SmolagentsAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_steps: int = Field(default=50, ge=1)
    """The maximum number of steps; then the model is asked for its answer."""


class SmolagentsAgent(CodedAgent):
    """Plays a `smolagents.ToolCallingAgent`."""

    config: SmolagentsAgentConfig

    def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:  # type: ignore[override]
        """Run the agent. It blocks, so `play` is not a coroutine function and gets its own thread."""
        model = OpenAIServerModel(
            rollout.model,
            api_base=rollout.base_url,
            api_key=rollout.api_key,
            client_kwargs={"max_retries": 0},
            **rollout.sampling,
        )
        agent = ToolCallingAgent(
            tools=[TaskTool(tool, rollout) for tool in rollout.tools],
            model=model,
            instructions=rollout.instructions or None,
            max_steps=self.config.max_steps,
            verbosity_level=LogLevel.OFF,
        )
        return str(agent.run(rollout.prompt))


class TaskTool(Tool):
    """A tool of the task as a smolagents tool."""

    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, tool: dict[str, Any], rollout: AgentRollout) -> None:
        self.name = tool["name"]
        self.description = tool.get("description") or tool["name"]
        required = tool["parameters"].get("required", [])
        self.inputs = {
            name: {"type": "any", "description": name, **schema, "nullable": name not in required}
            for name, schema in tool["parameters"].get("properties", {}).items()
        }
        self._rollout = rollout
        super().__init__()

    def forward(self, **arguments: Any) -> str:
        """Call the tool."""
        return self._rollout.call_tool_sync(self.name, arguments)


if __name__ == "__main__":
    SmolagentsAgent.run_webserver()
