# SPDX-License-Identifier: Apache-2.0
"""An agent with nothing but the client of Anthropic's package: ask the model, run the tools that it uses, ask again."""

from typing import Any

from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class AnthropicClientAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    max_turns: int = Field(default=50, ge=1)
    """Most calls of the model; what it has said by then is scored."""
    max_tokens: int = Field(default=4096, ge=1)
    """Most tokens of one answer, which Messages must be told, if neither the task nor the run says it."""


class AnthropicClientAgent(CodedAgent):
    """Plays with `anthropic` alone, over Messages; the model may be any."""

    config: AnthropicClientAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Take turns until the model uses no tool any more."""
        client = rollout.anthropic()
        messages: list[Any] = [{"role": "user", "content": rollout.prompt}]
        tools = [
            {"name": tool["name"], "description": tool.get("description") or "", "input_schema": tool["parameters"]}
            for tool in rollout.tools
        ]
        asked = {"model": rollout.model, "max_tokens": self.config.max_tokens, **rollout.sampling, "tools": tools}
        if rollout.instructions:
            asked["system"] = rollout.instructions
        for _ in range(self.config.max_turns):
            said = await client.messages.create(**asked, messages=messages)
            messages.append({"role": "assistant", "content": [part.model_dump() for part in said.content]})
            uses = [part for part in said.content if part.type == "tool_use"]
            if not uses:
                break
            told = [await rollout.call_tool(use.name, use.input) for use in uses]
            results = [
                {"type": "tool_result", "tool_use_id": use.id, "content": text}
                for use, text in zip(uses, told, strict=True)
            ]
            messages.append({"role": "user", "content": results})
        return None


if __name__ == "__main__":
    AnthropicClientAgent.run_webserver()
