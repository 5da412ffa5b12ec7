# SPDX-License-Identifier: Apache-2.0
"""The agent does what every example of an agent in Python must do."""

import pytest

from tests.support.example_agents import (  # noqa: F401
    played,
    test_a_model_that_comes_to_no_end_is_scored,
    test_a_task_is_solved_with_tools_called_in_the_session,
    test_an_endpoint_that_is_down_is_not_the_fault_of_the_agent,
    test_nothing_is_sent_to_anybody_else,
)

AGENT, LIMIT = "anthropic_client_agent", "max_turns=7"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
