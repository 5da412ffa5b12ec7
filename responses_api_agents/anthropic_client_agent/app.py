# SPDX-License-Identifier: Apache-2.0
"""An agent that uses only the Anthropic client: ask the model, run the tools it uses, ask again."""

from typing import Any

from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class AnthropicClientAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_turns: int = Field(default=50, ge=1)
    """The maximum number of model calls; after that, what the model has said is scored."""
    max_tokens: int = Field(default=4096, ge=1)
    """The maximum tokens of one answer, which Messages requires, if neither the task nor the run sets it."""


class AnthropicClientAgent(CodedAgent):
    """Plays with only `anthropic`, over Messages; any model works."""

    config: AnthropicClientAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Take turns until the model uses no more tools."""
        client = rollout.anthropic()
        messages: list[Any] = [{"role": "user", "content": rollout.prompt}]
        tools = [
            {"name": tool["name"], "description": tool.get("description") or "", "input_schema": tool["parameters"]}
            for tool in rollout.tools
        ]
        params = {"model": rollout.model, "max_tokens": self.config.max_tokens, **rollout.sampling, "tools": tools}
        if rollout.instructions:
            params["system"] = rollout.instructions
        for _ in range(self.config.max_turns):
            reply = await client.messages.create(**params, messages=messages)
            messages.append({"role": "assistant", "content": [part.model_dump() for part in reply.content]})
            uses = [part for part in reply.content if part.type == "tool_use"]
            if not uses:
                break
            outputs = [await rollout.call_tool(use.name, use.input) for use in uses]
            results = [
                {"type": "tool_result", "tool_use_id": use.id, "content": text}
                for use, text in zip(uses, outputs, strict=True)
            ]
            messages.append({"role": "user", "content": results})
        return None


if __name__ == "__main__":
    AnthropicClientAgent.run_webserver()
