# SPDX-License-Identifier: Apache-2.0
"""A process that may use half of a machine counts half of its processors."""

import os

import pytest

from nemo_gym._util.usable_cores import count_usable_cores


@pytest.fixture
def limit(tmp_path, monkeypatch):
    """Says what `cpu.max` of the process's own cgroup and of the one above it are, on a machine of 8 processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)

    def count(own: str | None, above: str | None = None) -> int:
        folder = tmp_path / "cgroup" / "slice" / "job"
        folder.mkdir(parents=True)
        for path, text in ((folder, own), (folder.parent, above)):
            if text is not None:
                (path / "cpu.max").write_text(text)
        (tmp_path / "own").write_text("0::/slice/job\n")
        return count_usable_cores(tmp_path / "cgroup", tmp_path / "own")

    return count


@pytest.mark.parametrize(
    ("own", "above", "cores"),
    [
        (None, None, 8),
        ("max 100000", None, 8),
        ("200000 100000", None, 2),
        ("150000 100000", None, 2),
        ("50000 100000", None, 1),
        ("max 100000", "300000 100000", 3),
        ("1600000 100000", None, 8),
        ("no numbers", None, 8),
    ],
)
def test_the_smaller_of_affinity_and_quota_counts(limit, own, above, cores):
    assert limit(own, above) == cores
