# SPDX-License-Identifier: Apache-2.0
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from nemo_gym._viewer.files.file_index import ReportError
from nemo_gym._viewer.html.report_export import choose_rows, export_report


class Links(HTMLParser):
    """Everything that a page refers to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("href", "src", "action", "srcset") and value]


@pytest.fixture
def index(write, opened, rollout, failed):
    rows = [rollout(task, number, float((task + number) % 2)) for task in range(4) for number in range(2)]
    write("r_failures.jsonl", [failed(1, 5, message="<b>no</b> answer")])
    return opened(write("r.jsonl", [*rows, b"{broken"]))


def test_a_report_is_complete_in_itself(index, tmp_path):
    report = export_report([index], tmp_path / "out")
    pages = sorted((tmp_path / "out").rglob("*.html"))
    assert (report.index, report.n_rollouts, len(pages)) == (tmp_path / "out" / "index.html", 9, 10)
    assert report.size_bytes == sum(page.stat().st_size for page in pages)
    for page in pages:
        html = page.read_text()
        assert html.startswith("<!doctype html>")
        assert "default-src 'none'" in unescape(html)
        for link in Links(html).found:
            assert (page.parent / link).is_file(), link


def test_the_first_page_tells_the_whole_run(index, tmp_path):
    html = export_report([index], tmp_path / "out").index.read_text()
    for said in ("mean reward", "pass@2/accuracy", "timeout", "&lt;b&gt;no&lt;/b&gt; answer", "1 line cannot be read"):
        assert said in html
    assert html.count("<svg") >= 3


def test_a_rollout_page_leads_to_the_next_and_back(index, tmp_path):
    export_report([index], tmp_path / "out")
    html = (tmp_path / "out" / "rollouts" / "1-3.html").read_text()
    assert re.search(r'href="1-2.html" rel="prev"', html)
    assert re.search(r'href="1-4.html" rel="next"', html)
    assert 'href="../index.html"' in html
    assert "Task 1 · Rollout 1" in html


def test_only_so_many_rows_of_each_file_get_a_page(index, tmp_path):
    export_report([index], tmp_path / "out", rollouts=2)
    assert sorted(page.name for page in (tmp_path / "out" / "rollouts").iterdir()) == [
        "1-0.html",
        "1-6.html",
        "2-0.html",
    ]


def test_failures_beside_the_rollouts_get_pages_with_their_prompt(index, write, tmp_path):
    task = {"_ng_task_index": 1, "_ng_rollout_index": 0, "expected_answer": "42"}
    write("r_materialized_inputs.jsonl", [{**task, "responses_create_params": {"input": "six times seven?"}}])
    export_report([index], tmp_path / "out")
    html = (tmp_path / "out" / "rollouts" / "2-0.html").read_text()
    assert "six times seven?" in html
    assert "expected_answer" in html
    assert "What the model said until then was not recorded." in html


def test_two_files_are_compared(index, write, opened, rollout, tmp_path):
    other = opened(write("other.jsonl", [rollout(task, 0, 1.0) for task in range(4)]))
    html = export_report([index, other], tmp_path / "out", rollouts=2).index.read_text()
    assert "Compared" in html
    assert "tasks where the run is better" in html
    assert (tmp_path / "out" / "rollouts" / "2-0.html").is_file()


def test_an_earlier_report_gives_way_and_anything_else_does_not(index, tmp_path):
    out = tmp_path / "out"
    export_report([index], out)
    export_report([index], out, rollouts=1)
    assert {page.name for page in (out / "rollouts").iterdir()} == {"1-0.html", "2-0.html"}
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(ReportError, match="is not empty and holds no earlier report"):
        export_report([index], mine)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    with pytest.raises(ReportError, match="is a file"):
        export_report([index], mine / "thesis.txt")


def test_the_choice_holds_the_best_the_worst_and_failures(write, opened, rollout, failed):
    rows = [rollout(task, reward=task / 100) for task in range(100)] + [failed(task) for task in range(100, 140)]
    index = opened(write("r.jsonl", rows))
    chosen = choose_rows(index, 20)
    assert len(chosen) == 20 == len(set(chosen))
    assert {0, 99} <= set(chosen)
    assert sum(row >= 100 for row in chosen) == 5
    assert chosen == sorted(chosen)


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 139, 140, 500])
def test_no_more_rows_are_chosen_than_asked_for(write, opened, rollout, failed, limit):
    rows = [rollout(task) for task in range(100)] + [failed(task) for task in range(40)]
    assert len(choose_rows(opened(write("r.jsonl", rows)), limit)) == min(limit, 140)


def test_a_dataset_can_be_exported_too(write, opened, tmp_path):
    index = opened(write("d.jsonl", [{"responses_create_params": {"input": f"question {n}"}} for n in range(30)]))
    report = export_report([index], tmp_path / "out", rollouts=10)
    assert report.n_rollouts == 10
    assert "question 0" in report.index.read_text()
