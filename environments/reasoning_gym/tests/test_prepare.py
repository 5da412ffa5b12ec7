# SPDX-License-Identifier: Apache-2.0
"""What this environment has beyond what all have (`tests/environments`): so many rows of every task."""

from environments.reasoning_gym import prepare


def test_every_task_has_its_rows_and_they_differ(monkeypatch):
    monkeypatch.setattr(prepare, "task_names", lambda: ["gcd", "chain_sum", "maze"])
    validation, train = (list(prepare.SPLITS[split]()) for split in ("validation", "train"))
    assert (len(validation), len(train)) == (6, 30)
    assert len({row["question"] for row in (*validation, *train)}) > 30
