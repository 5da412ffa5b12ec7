# SPDX-License-Identifier: Apache-2.0
"""`stateful_counter` leads to `example_session_state_mgmt`, in which everything else is tested."""

from resources_servers._older_names import play_example


async def test_a_task_is_played_under_the_older_names():
    assert (await play_example("stateful_counter"))["reward"] == 1.0
