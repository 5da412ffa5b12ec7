# SPDX-License-Identifier: Apache-2.0
"""What is recorded of a run that a sandbox cut short."""

from types import SimpleNamespace

from nemo_gym.sandbox.providers.base import SandboxExecResult
from nemo_gym.testing import agent_config, server_config
from responses_api_agents.program_agent.app import ProgramAgent
from responses_api_agents.program_agent.gateway import Budget
from responses_api_agents.program_agent.run import ProgramOutcome, _record_end


def test_what_a_sandbox_says_of_its_own_failure_is_told_as_it_is():
    config = server_config(ProgramAgent, command=["solve"], **agent_config("world"))
    gateway = SimpleNamespace(budget=Budget(max_calls=5, max_tokens=None))
    outcome = ProgramOutcome()
    said = SandboxExecResult(None, 'bwrap: {"cause": {}}', 1, "sandbox")
    _record_end(outcome, said, SimpleNamespace(config=config, command=("solve",)), gateway)
    assert outcome.failure is not None
    assert outcome.failure.name == "sandbox_failed"
    assert 'bwrap: {"cause": {}}' in outcome.failure.message
