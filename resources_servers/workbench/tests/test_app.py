# SPDX-License-Identifier: Apache-2.0
"""`workbench` leads to `workplace_assistant`, in which everything else is tested."""

from resources_servers._older_names import play_example


async def test_a_task_is_played_under_the_older_names():
    assert (await play_example("workbench"))["reward"] == 1.0
