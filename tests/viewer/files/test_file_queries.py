# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nemo_gym._viewer.files import row_selection
from nemo_gym._viewer.files.file_queries import Browser
from nemo_gym._viewer.files.row_selection import Filters


@pytest.fixture
def browser(write, opened, rollout):
    rows = [
        rollout(0, 0, 1.0, agent="solver", tools=("search",), text="an apple"),
        rollout(0, 1, 0.0, agent="solver", status="incomplete", text="Ärger im Zug"),
        rollout(1, 0, 0.5, agent="guesser", tools=("search", "submit"), text="a pear", overlap=0.3),
        rollout(1, 1, 0.0, agent="guesser", text='say "hi"\nand go', _ng_failure_class="timeout"),
        rollout(2, 0, 1.0, agent="solver", text="an APPLE again", overlap=0.9),
    ]
    return Browser(opened(write("r.jsonl", rows)))


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (Filters(), [0, 1, 2, 3, 4]),
        (Filters(reward_min=0.5), [0, 2, 4]),
        (Filters(reward_min=0.1, reward_max=0.9), [2]),
        (Filters(agents=("guesser",)), [2, 3]),
        (Filters(agents=("nobody",)), []),
        (Filters(task=1), [2, 3]),
        (Filters(outcome="scored"), [0, 1, 2, 4]),
        (Filters(outcome="failed"), [3]),
        (Filters(tool="search"), [0, 2]),
        (Filters(tool="submit"), [2]),
        (Filters(finish_reason="incomplete"), [1]),
        (Filters(failure_kind="timeout"), [3]),
        (Filters(text="apple"), [0, 4]),
        (Filters(text="apple", reward_min=0.5, task=0), [0]),
        (Filters(text="Ärger"), [1]),
        (Filters(text='say "hi"\nand'), [3]),
        (Filters(text="nowhere"), []),
    ],
)
def test_filters_leave_the_rows_that_pass_all_of_them(browser, filters, rows):
    found = browser.find_rows(filters)
    assert list(found.items) == rows
    assert found.complete
    assert found.total == len(rows)


@pytest.mark.parametrize(
    ("sort", "descending", "rows"),
    [
        ("file", True, [4, 3, 2, 1, 0]),
        ("reward", False, [1, 3, 2, 0, 4]),
        ("reward", True, [0, 4, 2, 1, 3]),
        ("agent", False, [2, 3, 0, 1, 4]),
        ("tool_calls", True, [2, 0, 1, 3, 4]),
        ("overlap", True, [4, 2, 0, 1, 3]),
        ("overlap", False, [2, 4, 0, 1, 3]),
        ("failure", False, [3, 0, 1, 2, 4]),
    ],
)
def test_rows_are_sorted_and_those_without_a_value_come_last(browser, sort, descending, rows):
    assert list(browser.find_rows(sort=sort, descending=descending).items) == rows


def test_cut_off_rollouts_and_those_with_a_crashed_tool_can_be_picked(write, opened, rollout):
    crashed = {"_ng_tool_errors": [{"tool": "t", "status": 500, "message": "no"}]}
    rows = [rollout(0), rollout(1, **crashed), rollout(2, _ng_cut_off="length"), rollout(3, _ng_cut_off="x", **crashed)]
    browser = Browser(opened(write("r.jsonl", rows)))
    assert list(browser.find_rows(Filters(tool_error=True)).items) == [1, 3]
    assert list(browser.find_rows(Filters(cut_off=True)).items) == [2, 3]
    assert list(browser.find_rows(Filters(cut_off=True, tool_error=True)).items) == [3]


def test_a_column_that_is_not_known_is_refused(browser):
    with pytest.raises(ValueError, match="cannot be sorted by 'color'"):
        browser.find_rows(sort="color")
    with pytest.raises(ValueError, match="cannot be sorted by 'color'"):
        browser.find_groups(sort="color")


def test_a_text_is_found_however_the_file_writes_its_characters(write, opened, rollout):
    line = json.dumps(rollout(0, text="Ärger")).encode()
    assert b"\\u00c4" in line
    assert list(Browser(opened(write("r.jsonl", [line]))).find_rows(Filters(text="Ärger")).items) == [0]


def test_a_broken_line_between_rows_is_never_a_hit(write, opened, rollout):
    browser = Browser(opened(write("r.jsonl", [rollout(0), b"broken needle", rollout(1, text="needle")])))
    assert list(browser.find_rows(Filters(text="needle")).items) == [1]


def test_a_long_search_gives_what_it_found_so_far_and_goes_on(write, opened, rollout, monkeypatch):
    monkeypatch.setattr(row_selection, "_CHUNK_BYTES", 600)
    rows = [rollout(task, text="needle" if task % 3 == 0 else "hay") for task in range(30)]
    browser = Browser(opened(write("r.jsonl", rows)))
    first = browser.find_rows(Filters(text="needle"), budget_s=0)
    assert not first.complete
    assert 0 < first.searched < 1
    asked = 1
    while not (found := browser.find_rows(Filters(text="needle"), budget_s=0)).complete:
        asked += 1
    assert asked > 3
    assert list(found.items) == list(range(0, 30, 3))


def test_rows_that_come_later_are_searched_too(write, opened, rollout):
    path = write("r.jsonl", [rollout(0, text="needle")])
    index = opened(path)
    browser = Browser(index)
    assert browser.find_rows(Filters(text="needle")).total == 1
    with open(path, "ab") as file:
        file.write(json.dumps(rollout(1, text="needle")).encode() + b"\n")
    index.refresh()
    assert list(browser.find_rows(Filters(text="needle")).items) == [0, 1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=12), min_size=1, max_size=8), needle=st.text(min_size=1, max_size=3))
def test_search_finds_every_row_that_holds_the_text(write, opened, texts, needle):
    path = write("r.jsonl", [{"t": text} for text in texts])
    path.unlink()
    browser = Browser(opened(write("r.jsonl", [{"t": text} for text in texts])))
    found = set(browser.find_rows(Filters(text=needle)).items)
    assert found >= {row for row, text in enumerate(texts) if needle in text}


def test_pages_show_rows_with_what_was_asked(browser):
    page = browser.read_page(browser.find_rows(sort="reward", descending=True), 1, size=2)
    assert [item.row for item in page.items] == [2, 1]
    assert (page.number, page.n_pages, page.total) == (1, 3, 5)
    assert (page.items[0].preview.asked, page.items[0].preview.answer) == ("question 1", "a pear")
    assert (page.items[0].tools, page.items[0].fields) == (("search", "submit"), {"overlap": 0.3})


def test_a_page_beyond_the_end_is_the_last_one(browser):
    results = browser.find_rows()
    assert browser.read_page(results, 99, size=2).number == 2
    assert browser.read_page(results, -1, size=2).number == 0
    assert browser.read_page(browser.find_rows(Filters(text="nowhere")), 0).n_pages == 1


def test_the_neighbors_of_a_row_are_those_in_the_list(browser):
    results = browser.find_rows(Filters(reward_min=0.5), sort="reward")
    assert list(results.items) == [2, 0, 4]
    beside = browser.find_neighbors(results, 0)
    assert (beside.previous, beside.next, beside.position, beside.total) == (2, 4, 1, 3)
    assert browser.find_neighbors(results, 2).previous is None
    assert browser.find_neighbors(results, 3).position is None


def test_repeats_of_a_task_are_grouped(browser):
    page = browser.read_group_page(browser.find_groups(), 0)
    assert [(group.task, group.rows) for group in page.items] == [(0, (0, 1)), (1, (2, 3)), (2, (4,))]
    first, second, _ = page.items
    assert (first.mean_reward, first.min_reward, first.max_reward, first.pass_rate) == (0.5, 0.0, 1.0, 0.5)
    assert (len(second.rows), second.n_failed, second.mean_reward) == (2, 1, 0.5)
    assert first.preview.asked == "question 0"


@pytest.mark.parametrize(
    ("sort", "descending", "tasks"),
    [
        ("task", True, [2, 1, 0]),
        ("pass_rate", False, [1, 0, 2]),
        ("failed", True, [1, 0, 2]),
        ("rollouts", False, [2, 0, 1]),
    ],
)
def test_groups_are_sorted(browser, sort, descending, tasks):
    page = browser.read_group_page(browser.find_groups(sort=sort, descending=descending), 0)
    assert [group.task for group in page.items] == tasks


def test_of_tasks_with_one_pass_rate_the_lower_mean_comes_first(write, opened, rollout):
    browser = Browser(opened(write("r.jsonl", [rollout(0, reward=0.5), rollout(1, reward=0.25), rollout(2)])))
    page = browser.read_group_page(browser.find_groups(sort="pass_rate"), 0)
    assert [group.task for group in page.items] == [1, 0, 2]


def test_two_agents_on_one_task_are_two_groups(write, opened, rollout):
    browser = Browser(opened(write("r.jsonl", [rollout(0, 0, agent="a"), rollout(0, 0, agent="b")])))
    assert browser.find_groups().total == 2


def test_what_there_is_to_filter_by(browser):
    choices = browser.list_choices()
    assert (choices.agents, choices.tools) == (("guesser", "solver"), ("search", "submit"))
    assert (choices.finish_reasons, choices.failure_kinds) == (("completed", "incomplete"), ("timeout",))
    assert (choices.fields, choices.reward_low, choices.reward_high) == (("overlap",), 0.0, 1.0)


def test_a_summary_says_none_where_nothing_is_known(write, opened):
    summary = Browser(opened(write("d.jsonl", [{"responses_create_params": {"input": "hello  there"}}]))).summarize_row(
        0
    )
    assert (summary.agent, summary.reward, summary.output_tokens, summary.outcome) == (None, None, None, "unscored")
