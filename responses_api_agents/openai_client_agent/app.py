# SPDX-License-Identifier: Apache-2.0
"""An agent with nothing but the client of OpenAI's package: ask the model, run the tools that it calls, ask again."""

from typing import Any

from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class OpenAIClientAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_turns: int = Field(default=50, ge=1)
    """Most calls of the model; what it has said by then is scored."""


class OpenAIClientAgent(CodedAgent):
    """Plays with `openai` alone, over Chat Completions."""

    config: OpenAIClientAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Take turns until the model calls no tool any more."""
        client, asked = rollout.openai(), rollout.chat_params
        for _ in range(self.config.max_turns):
            said = (await client.chat.completions.create(**asked)).choices[0].message
            asked["messages"].append(said.model_dump(exclude_none=True))
            if not said.tool_calls:
                break
            for call in said.tool_calls:
                told = await rollout.call_tool(call.function.name, call.function.arguments)
                asked["messages"].append({"role": "tool", "tool_call_id": call.id, "content": told})
        return None


if __name__ == "__main__":
    OpenAIClientAgent.run_webserver()
