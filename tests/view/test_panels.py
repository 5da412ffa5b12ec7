# SPDX-License-Identifier: Apache-2.0
"""What the header says about a file while it is read, and after it was lost."""

from dataclasses import replace

import pytest

from nemo_gym._view import panels
from nemo_gym._view.location import Place
from nemo_gym._view.open_files import Shelf
from tests.view import rows


@pytest.fixture
def shelf(tmp_path):
    with Shelf.of([rows.write(tmp_path / "run.jsonl", [rows.rollout(0, 0), "broken", rows.rollout(1, 0)])]) as opened:
        assert opened.files[0].index.wait(30)
        yield opened


def header(shelf, monkeypatch, **progress):
    """The header when the index has got so far."""
    file = shelf.files[0]
    monkeypatch.setattr(file, "progress", lambda now=replace(file.progress(), **progress): now)
    return panels.header(shelf, Place(tab="browse"))


def test_a_bar_shows_how_much_of_the_file_is_read(shelf, monkeypatch):
    said = header(shelf, monkeypatch, complete=False, bytes_done=250, bytes_total=1000)
    assert '<progress class="ngp-progress" max="1" value="0.250"></progress>' in said
    assert "reading 25%" in said


def test_a_file_that_is_read_has_no_bar(shelf, monkeypatch):
    assert "<progress" not in header(shelf, monkeypatch)


def test_broken_lines_lead_to_their_list(shelf, monkeypatch):
    said = header(shelf, monkeypatch)
    assert 'href="?tab=overview"' in said
    assert "1 broken line</a>" in said


def test_a_file_that_was_lost_says_why(shelf, monkeypatch):
    assert "it is &lt;gone&gt;" in header(shelf, monkeypatch, error="it is <gone>")
