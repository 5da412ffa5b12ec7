# SPDX-License-Identifier: Apache-2.0
"""`library_judge_math` leads to `math_with_judge`, in which everything else is tested."""

from resources_servers._older_names import play_example


async def test_a_task_is_played_under_the_older_names():
    assert (await play_example("library_judge_math"))["reward"] == 1.0
