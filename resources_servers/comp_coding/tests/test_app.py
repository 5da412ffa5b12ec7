# SPDX-License-Identifier: Apache-2.0
"""`comp_coding` leads to `code_gen`, in which everything else is tested."""

from resources_servers._older_names import play_example


async def test_a_task_is_played_under_the_older_names():
    assert (await play_example("comp_coding"))["reward"] == 1.0
