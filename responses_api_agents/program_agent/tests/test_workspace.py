# SPDX-License-Identifier: Apache-2.0
"""What a program has changed, as `patch` would read it."""

import subprocess
from pathlib import Path

from hypothesis import given, settings, strategies as st

from responses_api_agents.program_agent.workspace import collect_change

TEXTS = st.text(st.sampled_from("ab\n\r\f\x1c\u2028\x85"), max_size=12)


@given(old=TEXTS, new=TEXTS)
@settings(max_examples=60, deadline=None)
def test_the_diff_of_a_text_file_turns_the_old_one_into_the_new_one(tmp_path_factory, old, new):
    folder = tmp_path_factory.mktemp("workspace")
    for name, text in (("before", old), ("after", new)):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_bytes(text.encode())
    change = collect_change(folder / "before", folder / "after", leave_out=[], patterns=["*"], max_bytes=10_000)
    if old == new:
        assert change.diff == ""
        return
    assert apply_diff(folder / "before", change.diff) == new.encode()


def apply_diff(folder: Path, diff: str) -> bytes:
    """Return what `git apply` makes of the file."""
    command = ["git", "apply", "--unsafe-paths", "--whitespace=nowarn", "--unidiff-zero", "-"]
    done = subprocess.run(command, input=diff.encode(), cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, (diff, done.stderr)
    return (folder / "a.txt").read_bytes() if (folder / "a.txt").exists() else b""


def test_files_that_cannot_be_compared_in_time_are_left_out(tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    (tmp_path / "after" / "new.txt").write_text("x")
    change = collect_change(
        tmp_path / "before", tmp_path / "after", leave_out=[], patterns=["*"], max_bytes=100, give_up_at_s=0.0
    )
    assert (change.files, change.left_out) == ({}, ["new.txt"])
