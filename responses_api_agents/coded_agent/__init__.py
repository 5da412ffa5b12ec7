# SPDX-License-Identifier: Apache-2.0
"""The base of agents that are written in Python, with the client or the framework of their author's choice."""

from responses_api_agents.coded_agent.base import CodedAgent, CodedAgentConfig, CodedAgentVerifyResponse
from responses_api_agents.coded_agent.rollout import AgentRollout

__all__ = ["AgentRollout", "CodedAgent", "CodedAgentConfig", "CodedAgentVerifyResponse"]
