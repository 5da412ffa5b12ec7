# SPDX-License-Identifier: Apache-2.0
"""What the header says about a file while it is read, and after it was lost."""

from dataclasses import replace

import pytest

from nemo_gym._viewer.files.file_index import Index
from nemo_gym._viewer.page import list_tables as tables, panels
from nemo_gym._viewer.page.location import Location
from nemo_gym._viewer.page.open_files import open_files
from tests.viewer.browser import rows


@pytest.fixture
def files(tmp_path):
    path = rows.write(tmp_path / "run.jsonl", [rows.rollout(0, 0), "broken", rows.rollout(1, 0)])
    with open_files([path]) as opened:
        assert opened.files[0].index.wait(300)
        yield opened


def header(files, monkeypatch, **progress):
    """The header when the index has got so far."""
    now = replace(files.files[0].index.progress, **progress)
    monkeypatch.setattr(Index, "progress", property(lambda _: now))
    return panels.render_header(files, Location(tab="browse"))


def test_a_bar_shows_how_much_of_the_file_is_read(files, monkeypatch):
    said = header(files, monkeypatch, complete=False, bytes_done=250, bytes_total=1000)
    assert '<progress class="ngp-progress" max="1" value="0.250"></progress>' in said
    assert "reading 25%" in said


def test_a_file_that_is_read_has_no_bar(files, monkeypatch):
    assert "<progress" not in header(files, monkeypatch)


def test_broken_lines_lead_to_their_list(files, monkeypatch):
    said = header(files, monkeypatch)
    assert 'href="?tab=overview"' in said
    assert "1 broken line</a>" in said


def test_a_file_that_was_lost_says_why(files, monkeypatch):
    assert "it is &lt;gone&gt;" in header(files, monkeypatch, error="it is <gone>")


def test_files_of_one_name_have_labels_of_their_own(tmp_path):
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        rows.write(tmp_path / folder / "run.jsonl", [rows.rollout(0, 0)])
    with open_files([tmp_path / "before" / "run.jsonl", tmp_path / "after" / "run.jsonl"]) as opened:
        said = panels.render_header(opened, Location(tab="browse"))
    assert ">before/run.jsonl</h1>" in said
    assert ">after/run.jsonl</a>" in said


def test_a_canceled_rollout_is_listed_as_not_run(tmp_path):
    canceled = {"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_failure_class": "cancelled"}
    with open_files([rows.write(tmp_path / "run_failures.jsonl", [canceled])]) as opened:
        file = opened.files[0]
        assert file.index.wait(30)
        said = tables.RewardScale(file).render_outcome(file.browser.summarize_row(0))
    assert said == '<span class="ngp-badge">not run</span>'
