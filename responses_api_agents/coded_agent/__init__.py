# SPDX-License-Identifier: Apache-2.0
"""The base class for agents written in Python, with any client or framework."""

from responses_api_agents.coded_agent.base import CodedAgent, CodedAgentConfig, CodedAgentVerifyResponse
from responses_api_agents.coded_agent.rollout import AgentRollout

__all__ = ["AgentRollout", "CodedAgent", "CodedAgentConfig", "CodedAgentVerifyResponse"]
