# SPDX-License-Identifier: Apache-2.0
"""What this environment has beyond what all have (`tests/environments`): its splits share all tasks out."""

from environments.instruction_following.prepare import SPLITS
from resources_servers.instruction_following import generate_data


def test_every_task_is_in_one_split():
    ids = [row["id"] for rows_of_split in SPLITS.values() for row in rows_of_split()]
    assert len(ids) == len(set(ids)) == len(generate_data.all_rows())
