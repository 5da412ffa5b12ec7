# SPDX-License-Identifier: Apache-2.0
from nemo_gym.deliverables import IGNORE_FILES, is_deliverable


def test_a_file_that_was_asked_for_is_a_deliverable(tmp_path):
    report = tmp_path / "report.docx"
    report.write_text("done")
    assert is_deliverable(report)
    assert is_deliverable(str(report))


def test_what_a_run_leaves_beside_it_is_none(tmp_path):
    for name in IGNORE_FILES:
        (tmp_path / name).write_text("{}")
        assert not is_deliverable(tmp_path / name)


def test_a_folder_or_a_missing_file_is_none(tmp_path):
    assert not is_deliverable(tmp_path)
    assert not is_deliverable(tmp_path / "missing.txt")
