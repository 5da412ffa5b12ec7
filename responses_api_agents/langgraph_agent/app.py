# SPDX-License-Identifier: Apache-2.0
"""A LangGraph graph with a model node and a node for the resources server's tools, over Chat Completions."""

from contextlib import suppress
from typing import Any

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langsmith import tracing_context
from pydantic import Field

from responses_api_agents.coded_agent import AgentRollout, CodedAgent, CodedAgentConfig


class LangGraphAgentConfig(CodedAgentConfig):
    """Config of the agent."""

    recursion_limit: int = Field(default=100, ge=1)
    """The maximum number of graph steps, two per turn with tools; after that, what the model has said is scored."""


class LangGraphAgent(CodedAgent):
    """Plays a graph."""

    config: LangGraphAgentConfig

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        """Run the graph until the model calls no more tools, with tracing off."""
        tools = [make_tool(tool, rollout) for tool in rollout.tools]
        chat = ChatOpenAI(
            model=rollout.model,
            base_url=rollout.base_url,
            api_key=rollout.api_key,
            max_retries=0,
            **rollout.sampling,
        )
        model = chat.bind_tools(tools) if tools else chat

        async def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", ask)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        limit = {"recursion_limit": self.config.recursion_limit}
        # A model that reaches the limit is scored by what it has said.
        with tracing_context(enabled=False), suppress(GraphRecursionError):
            await graph.compile().ainvoke({"messages": rollout.messages}, limit)
        return None


def make_tool(tool: dict[str, Any], rollout: AgentRollout) -> StructuredTool:
    """Return a tool of the task as a LangChain tool."""

    async def call(**arguments: Any) -> str:
        return await rollout.call_tool(tool["name"], arguments)

    return StructuredTool(
        name=tool["name"], description=tool.get("description") or "", args_schema=tool["parameters"], coroutine=call
    )


if __name__ == "__main__":
    LangGraphAgent.run_webserver()
