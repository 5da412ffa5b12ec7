# SPDX-License-Identifier: Apache-2.0
"""An agent that uses only the OpenAI client: ask the model, run the tools it calls, ask again."""

from typing import Any

from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class OpenAIClientAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_turns: int = Field(default=50, ge=1)
    """The maximum number of model calls; after that, what the model has said is scored."""


class OpenAIClientAgent(CodedAgent):
    """Plays with only `openai`, over Chat Completions."""

    config: OpenAIClientAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Take turns until the model calls no more tools."""
        client = rollout.openai()
        params = rollout.chat_params
        for _ in range(self.config.max_turns):
            message = (await client.chat.completions.create(**params)).choices[0].message
            params["messages"].append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                output = await rollout.call_tool(call.function.name, call.function.arguments)
                params["messages"].append({"role": "tool", "tool_call_id": call.id, "content": output})
        return None


if __name__ == "__main__":
    OpenAIClientAgent.run_webserver()
