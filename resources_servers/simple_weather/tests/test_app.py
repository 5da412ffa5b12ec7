# SPDX-License-Identifier: Apache-2.0
"""`simple_weather` leads to `example_single_tool_call`, in which everything else is tested."""

from resources_servers._older_names import play_example


async def test_a_task_is_played_under_the_older_names():
    assert (await play_example("simple_weather"))["reward"] == 1.0
