# SPDX-License-Identifier: Apache-2.0
"""The Compare tab in a browser: two rollouts of a task, two files."""

import re

from playwright.sync_api import expect

MARK = "#ngv-first-difference"


def test_another_rollout_of_the_task_is_put_beside_and_the_first_difference_marked(visit):
    page = visit.open("?tab=rollout&task=3&sort=rollout&agent=careful_agent")
    page.locator("#ngp-bar").get_by_text("Compare", exact=True).click()
    expect(page.locator("#ngp-comparison h3")).to_have_text([re.compile(r"Task 3 · Rollout \d")] * 2)
    expect(page.locator(MARK)).to_have_text("The first difference")
    expect(page.locator("#ngp-comparison .ngv-field")).to_have_text(re.compile(r"Target, expected_answer\s*no coat"))
    marks = page.locator("#ngp-comparison .ngv-pair.first mark")
    expect(marks).to_have_text(["1", "2"])  # 11 and 12 km/h of wind, what the first tool call was told
    expect(page.locator("#ngp-comparison .ngv-pair.same")).to_have_count(6)
    assert "with=0." in visit.place
    visit.keep("compare-rollouts")


def test_either_side_can_be_chosen_also_from_another_file(visit, files):
    page = visit.open("?tab=compare&row=1&with=0.2")
    page.locator(".ngp-side").nth(1).locator(".ngp-chips", has_text="other.jsonl").locator(".ngp-chip").first.click()
    visit.settle()
    assert f"with={files.number('other.jsonl')}." in visit.place
    expect(page.locator(MARK)).to_be_visible()


def test_two_files_are_matched_by_task_and_a_task_opens_its_rollouts(visit):
    page = visit.open("?tab=compare&against=1")
    tiles = page.locator("#ngp-comparison .ngv-tile")
    expect(tiles.nth(0)).to_contain_text("tasks where the run is better")
    rows = page.locator("#ngp-comparison tbody tr")
    expect(rows).to_have_count(12)
    expect(rows.first).to_have_text(re.compile(r"[+-]0\.\d+\s*(run|baseline)"))
    visit.keep("compare-files")
    rows.first.locator("a").click()
    expect(page.locator("#ngp-comparison h3")).to_have_count(2)
    expect(page.locator(MARK)).to_be_visible()


def test_a_file_in_which_nothing_is_repeated_says_so(visit, files):
    page = visit.open(f"?tab=compare&file={files.number('growing.jsonl')}&row=0")
    page.locator("#ngp-comparison .ngp-chip", has_text="Rollouts").click()
    expect(page.locator("#ngp-comparison")).to_contain_text("growing.jsonl")
