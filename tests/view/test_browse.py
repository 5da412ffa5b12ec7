# SPDX-License-Identifier: Apache-2.0
"""The Browse tab in a browser: search, filters, order, groups, pages."""

import re

import pytest
from playwright.sync_api import Page, expect

ROWS = "#ngp-listing tbody tr"
FOUND = "#ngp-listing .ngp-found"


def column(page: Page, number: int) -> list[str]:
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
    assert column(page, 8) == sorted(column(page, 8), key=int)
    page.locator("#ngp-listing th a", has_text="Tokens").click()
    expect(page.locator("#ngp-listing th[aria-sort=descending]")).to_have_text("Tokens")
    assert column(page, 8) == sorted(column(page, 8), key=int, reverse=True)


@pytest.mark.parametrize(
    ("query", "number", "expected"),
    [
        ("agent=careful_agent", 4, {"careful_agent"}),
        ("min=1", 3, {"1"}),
        ("max=0.5", 3, {"0"}),
        ("min=0.2&max=1.5", 3, {"1"}),
        ("task=3", 1, {"3"}),
        ("finish=max_output_tokens", 6, {"max_output_tokens"}),
        ("tool=get_wind", 7, {"2", "3"}),
    ],
)
def test_a_filter_leaves_only_what_it_says(visit, query, number, expected):
    page = visit.open(f"?tab=browse&{query}")
    expect(page.locator(FOUND)).to_have_text(re.compile(r"\d+ rollouts found"))
    assert set(column(page, number)) == expected


def more_filters(visit, query: str) -> Page:
    """The Browse tab with all its filters unfolded."""
    page = visit.open(query)
    if not page.get_by_label("Tool used").is_visible():
        page.get_by_role("button", name="More filters").click()
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
    assert set(column(page, 3)) == {"1"}


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
    assert set(column(page, 3)) == {"0"}
    page.get_by_label("Reward from").fill("0.25")
    expect(page.locator("#ngp-listing")).to_contain_text("No rollout matches these filters.")


def test_rows_are_sorted_by_what_is_chosen(visit):
    page = visit.open("?tab=browse")
    page.get_by_label("Sort by").click()
    page.get_by_role("option", name="tool calls").click()
    expect(page.locator("#ngp-listing th[aria-sort=ascending]")).to_have_text("Tool calls")
    assert set(column(page, 7)) <= {"0", "1"}
    page.get_by_label("Highest first").click()
    expect(page.locator("#ngp-listing th[aria-sort=descending]")).to_have_text("Tool calls")
    assert column(page, 7)[0] == "3"


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


def test_the_repeats_of_a_task_are_one_line_of_squares(visit):
    page = visit.open("?tab=browse")
    page.get_by_label("Group by task").click()
    expect(page.locator(FOUND)).to_have_text("24 tasks")
    first = page.locator(ROWS).first
    expect(first.locator(".ngp-dot")).to_have_count(4)
    expect(first.locator(".ngp-dot").nth(1)).to_have_attribute("title", re.compile(r"rollout 1 · reward [01]"))
    first.locator(".ngp-dot").nth(1).click()
    expect(page.locator("#ngp-conversation h1")).to_have_text("Task 0 · Rollout 1")


@pytest.mark.parametrize(
    ("name", "badge", "headings"),
    [
        ("inputs.jsonl", "materialized inputs", {"Task", "Rollout", "Asked"}),
        ("dataset.jsonl", "dataset", {"Task", "Asked"}),
        ("profile.jsonl", "profiled tasks", {"Task", "Reward", "Asked"}),
        ("run_failures.jsonl", "failures", {"Task", "Rollout", "Failure", "Asked"}),
    ],
)
def test_any_file_of_a_run_can_be_browsed(visit, files, name, badge, headings):
    page = visit.open(f"?tab=browse&file={files.number(name)}")
    expect(page.locator("#ngp-header .ngp-badge").first).to_have_text(badge)
    assert headings <= set(page.locator("#ngp-listing th").all_inner_texts())
    page.locator(ROWS).first.click()
    expect(page.locator("#ngp-conversation .ngv-user")).to_contain_text("should I take a coat?")
