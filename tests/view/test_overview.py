# SPDX-License-Identifier: Apache-2.0
"""The Overview tab in a browser."""

import re

from playwright.sync_api import expect

PLOTS = ("Rewards", "Pass rate per task", "Reward against length", "Reward against tool calls", "Tokens per rollout")


def test_metrics_have_intervals_and_say_of_how_many_rollouts(visit):
    page = visit.open("?tab=overview")
    row = page.locator("#ngp-numbers tr", has_text="mean/reward")
    expect(row).to_have_text(re.compile(r"0\.\d+.*0\.\d+ … 0\.\d+.*96"))


def test_plots_are_drawn_by_gradio(visit):
    page = visit.open("?tab=overview")
    for title in (*PLOTS, "Failures by kind"):
        drawn = page.locator("#ngp-overview .vega-embed", has=page.get_by_text(title))
        expect(drawn.locator(".mark-rect path").first).to_be_attached()


def test_failures_of_the_file_beside_are_counted_by_kind(visit):
    page = visit.open("?tab=overview")
    expect(page.locator("#ngp-details tr", has_text="model")).to_contain_text("the endpoint answered 503 three times")
    expect(page.locator("#ngp-details tr", has_text="timeout")).to_contain_text("no answer within 60 s")
    expect(page.locator(".ngp-tile", has_text="failed")).to_contain_text("3")


def test_broken_lines_are_counted_and_listed_with_their_reason(visit):
    page = visit.open("?tab=overview")
    expect(page.locator("#ngp-header")).to_contain_text("2 broken lines")
    expect(page.locator("#ngp-details tr", has_text="line 4")).to_contain_text("not valid JSON")
    expect(page.locator("#ngp-details")).to_contain_text("a JSON object is expected, this is a list")


def test_one_agent_can_be_looked_at_alone(visit):
    page = visit.open("?tab=overview")
    page.locator("#ngp-numbers").get_by_text("careful_agent").click()
    visit.settle()
    assert "of=careful_agent" in visit.place
    expect(page.locator("#ngp-numbers tr", has_text="mean/reward").locator("td").last).to_have_text("48 of ?")


def test_a_file_without_rewards_shows_what_it_has(visit, files):
    page = visit.open(f"?file={files.number('dataset.jsonl')}")
    expect(page.locator("#ngp-header")).to_contain_text("96 tasks")
    expect(page.locator("#ngp-overview .vega-embed").filter(visible=True)).to_have_count(0)
