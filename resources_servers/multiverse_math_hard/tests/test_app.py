# SPDX-License-Identifier: Apache-2.0
"""`multiverse_math_hard` leads to `math_advanced_calculations`, in which everything else is tested."""

from resources_servers._older_names import play_example


async def test_a_task_is_played_under_the_older_names():
    assert (await play_example("multiverse_math_hard"))["reward"] == 1.0
