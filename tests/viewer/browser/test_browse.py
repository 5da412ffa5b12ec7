# SPDX-License-Identifier: Apache-2.0
"""The Browse tab in a browser: search, filters, order, groups, pages."""

import re

import pytest
from playwright.sync_api import Page, expect

ROWS = "#ngp-listing tbody tr"
FOUND = "#ngp-listing .ngp-found"


def column(page: Page, heading: str) -> list[str]:
    number = page.locator("#ngp-listing th").all_inner_texts().index(heading) + 1
    return page.locator(f"{ROWS} td:nth-child({number})").all_inner_texts()


def test_every_rollout_is_listed_page_by_page(visit):
    page = visit.open("?tab=browse")
    expect(page.locator(FOUND)).to_contain_text("96 rollouts")
    expect(page.locator(ROWS)).to_have_count(25)
    page.get_by_text("Next page").click()
    expect(page.locator("#ngp-listing .ngp-pager")).to_contain_text("Page 2 of 4")
    visit.settle()
    assert "page=1" in visit.place
    page.keyboard.press("j")
    expect(page.locator("#ngp-listing .ngp-pager")).to_contain_text("Page 3 of 4")
    page.keyboard.press("k")
    expect(page.locator("#ngp-listing .ngp-pager")).to_contain_text("Page 2 of 4")


def test_text_is_searched_while_it_is_typed(visit):
    page = visit.open("?tab=browse")
    page.get_by_label("Search").fill("weather in Kyoto")
    expect(page.locator(FOUND)).to_contain_text("8 rollouts found")
    visit.settle()
    assert "q=weather+in+Kyoto" in visit.place
    page.get_by_text("Clear filters").click()
    expect(page.locator(FOUND)).to_contain_text("96 rollouts")
    expect(page.get_by_label("Search")).to_have_value("")


def test_what_is_typed_and_set_at_once_both_count(visit):
    page = visit.open("?tab=browse")
    page.get_by_label("Search").fill("weather in Kyoto")
    page.get_by_label("Scored").click()
    expect(page).to_have_url(re.compile(r"q=weather\+in\+Kyoto.*outcome=scored"))
    expect(page.locator(FOUND)).to_contain_text("8 rollouts found")


def test_a_heading_sorts_by_its_column_and_back(visit):
    page = visit.open("?tab=browse")
    page.locator("#ngp-listing th a", has_text="Tokens").click()
    expect(page.locator("#ngp-listing th[aria-sort=ascending]")).to_have_text("Tokens")
    assert column(page, "Tokens") == sorted(column(page, "Tokens"), key=int)
    page.locator("#ngp-listing th a", has_text="Tokens").click()
    expect(page.locator("#ngp-listing th[aria-sort=descending]")).to_have_text("Tokens")
    assert column(page, "Tokens") == sorted(column(page, "Tokens"), key=int, reverse=True)


@pytest.mark.parametrize(
    ("query", "heading", "expected"),
    [
        ("agent=careful_agent", "Agent", {"careful_agent"}),
        ("min=0.2&max=1.5", "Reward", {"1"}),
        ("task=3", "Task", {"3"}),
        ("finish=max_output_tokens", "Finish", {"max_output_tokens"}),
        ("tool=get_wind", "Tool calls", {"2", "3"}),
        ("cut=1", "Trouble", {"cut off", "crashed tool cut off"}),
        ("crashed=1", "Trouble", {"crashed tool", "crashed tool cut off"}),
    ],
)
def test_a_filter_leaves_only_what_it_says(visit, query, heading, expected):
    page = visit.open(f"?tab=browse&{query}")
    expect(page.locator(FOUND)).to_have_text(re.compile(r"\d+ rollouts found"))
    assert set(column(page, heading)) == expected


def more_filters(visit, query: str) -> Page:
    """The Browse tab with all its filters unfolded."""
    page = visit.open(query)
    if not page.get_by_label("Tool used").is_visible():
        page.get_by_role("button", name="More filters and columns").click()
    expect(page.get_by_label("Tool used")).to_be_visible()
    return page


def test_filters_add_up(visit):
    page = more_filters(visit, "?tab=browse")
    page.get_by_label("Task", exact=True).fill("5")
    expect(page.locator(FOUND)).to_contain_text("8 rollouts found")
    page.get_by_label("Reward from").fill("1")
    page.get_by_label("Agents").click()
    page.get_by_role("option", name="careful_agent").click()
    expect(page.locator(ROWS).first).to_contain_text("careful_agent")
    visit.settle()
    assert {"task=5", "min=1", "agent=careful_agent"} <= set(visit.place.removeprefix("?").split("&"))
    assert set(column(page, "Reward")) == {"1"}


@pytest.mark.parametrize(
    ("label", "option", "place"), [("Tool used", "get_wind", "tool"), ("Finish", "max_", "finish")]
)
def test_a_filter_offers_what_the_file_holds(visit, label, option, place):
    page = more_filters(visit, "?tab=browse")
    page.get_by_label(label).click()
    page.get_by_role("option", name=option).click()
    expect(page.locator(FOUND)).to_contain_text("rollouts found")
    visit.settle()
    assert f"{place}={option}" in visit.place


def test_a_range_of_rewards_is_left(visit):
    page = more_filters(visit, "?tab=browse")
    page.get_by_label("to", exact=True).fill("0.5")
    expect(page.locator(FOUND)).to_contain_text("rollouts found")
    visit.settle()
    assert set(column(page, "Reward")) == {"0"}
    page.get_by_label("Reward from").fill("0.25")
    expect(page.locator("#ngp-listing")).to_contain_text("No rollout matches these filters.")


def test_rows_are_sorted_by_what_is_chosen(visit):
    page = visit.open("?tab=browse")
    page.get_by_label("Sort by").click()
    page.get_by_role("option", name="tool calls").click()
    expect(page.locator("#ngp-listing th[aria-sort=ascending]")).to_have_text("Tool calls")
    assert set(column(page, "Tool calls")) <= {"0", "1"}
    page.get_by_label("Highest first").click()
    expect(page.locator("#ngp-listing th[aria-sort=descending]")).to_have_text("Tool calls")
    assert column(page, "Tool calls")[0] == "3"


def test_failed_and_scored_are_told_apart(visit, files):
    page = more_filters(visit, f"?tab=browse&file={files.number('run_failures.jsonl')}")
    expect(page.locator(ROWS)).to_have_count(3)
    page.get_by_label("Scored").click()
    expect(page.locator("#ngp-listing")).to_contain_text("No failure matches these filters.")
    page.get_by_label("Failed").click()
    expect(page.locator(ROWS)).to_have_count(3)
    page.get_by_label("Failure", exact=True).click()
    page.get_by_role("option", name="timeout").click()
    expect(page.locator(ROWS)).to_have_count(1)
    visit.settle()
    assert {"outcome=failed", "failure=timeout"} <= set(visit.place.split("&"))


def test_what_was_asked_last_the_answer_and_the_target_are_in_the_list(visit):
    page = visit.open("?tab=browse&task=4&min=1&sort=rollout&agent=weather_agent")
    assert column(page, "Last user message")[0] == "What is the weather in Quito, and should I take a coat?"
    assert column(page, "Answer")[0].startswith("No coat needed: it is 22 degrees in Quito")
    assert column(page, "Target")[0] == "no coat"


def test_fields_of_the_task_become_columns_of_the_readers_choice(visit):
    page = more_filters(visit, "?tab=browse")
    assert "format_reward" in page.locator("#ngp-listing th").all_inner_texts()
    page.get_by_label("Columns").click()
    page.get_by_role("option", name="climate").click()
    expect(page.locator("#ngp-listing th", has_text="climate")).to_be_visible()
    visit.settle()
    assert "col=climate" in visit.place
    assert set(column(page, "climate")) <= {"mild", "hot"}
    assert "format_reward" not in page.locator("#ngp-listing th").all_inner_texts()


def test_rollouts_with_a_crashed_tool_can_be_picked(visit):
    page = more_filters(visit, "?tab=browse")
    page.get_by_label("a crashed tool").click()
    expect(page.locator(FOUND)).to_contain_text("8 rollouts found")
    visit.settle()
    assert "crashed=1" in visit.place


def test_tasks_are_listed_worst_first_and_lead_to_their_rollouts(visit):
    page = visit.open("?tab=browse")
    page.locator("#ngp-header .ngp-tab", has_text="Tasks").click()
    expect(page.locator(FOUND)).to_have_text("24 tasks")
    rates = [int(rate.rstrip("%")) for rate in column(page, "Pass rate")]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    expect(page.locator("#ngp-listing")).to_contain_text("3 more tasks have no scored rollout: see run_failures.jsonl.")
    task, first = column(page, "Task")[0], page.locator(ROWS).first
    expect(first.locator(".ngp-dot")).to_have_count(4)
    expect(first.locator(".ngp-dot").nth(1)).to_have_attribute("title", re.compile(r"rollout 1 · reward [01]"))
    first.locator("td").last.click()
    expect(page.locator("#ngp-header .ngp-tab[aria-current]")).to_have_text("Rollouts")
    expect(page.locator(FOUND)).to_contain_text("4 rollouts found")
    visit.settle()
    assert set(column(page, "Task")) == {task}


@pytest.mark.parametrize(
    ("name", "badge", "headings"),
    [
        ("inputs.jsonl", "materialized inputs", {"Task", "Rollout", "Last user message"}),
        ("dataset.jsonl", "dataset", {"Task", "Last user message"}),
        ("profile.jsonl", "profiled tasks", {"Task", "Reward", "Last user message"}),
        ("run_failures.jsonl", "failures", {"Task", "Rollout", "Failure", "Message", "Last user message", "Target"}),
    ],
)
def test_any_file_of_a_run_can_be_browsed(visit, files, name, badge, headings):
    page = visit.open(f"?tab=browse&file={files.number(name)}")
    expect(page.locator("#ngp-header .ngp-badge").first).to_have_text(badge)
    assert headings <= set(page.locator("#ngp-listing th").all_inner_texts())
    page.locator(ROWS).first.click()
    expect(page.locator("#ngp-conversation .ngv-user")).to_contain_text("should I take a coat?")
