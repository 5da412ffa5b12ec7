# SPDX-License-Identifier: Apache-2.0
"""The Overview tab in a browser."""

import re

from playwright.sync_api import expect

from tests.viewer.browser.conftest import SECRET

CHARTS = ("Rewards", "Pass rate per task", "Mean reward by length", "Mean reward by tool calls", "How responses ended")


def test_metrics_have_intervals_and_say_of_how_many_rollouts(visit):
    page = visit.open("?tab=overview")
    row = page.locator("#ngp-numbers tr", has_text="mean/reward")
    expect(row).to_have_text(re.compile(r"0\.\d+.*0\.\d+ … 0\.\d+.*96"))


def test_charts_are_drawn_and_a_bar_of_zero_can_be_seen(visit):
    page = visit.open("?tab=overview")
    for title in (*CHARTS, "Failures by kind"):
        drawn = page.locator("#ngp-overview figure", has_text=title).locator("rect")
        assert all(bar.bounding_box()["height"] > 1 for bar in drawn.all())
        assert drawn.count() > 0
    page = visit.open("?tab=overview&of=careful_agent&file=0")
    rates = page.locator("#ngp-overview figure", has_text="Pass rate per task").locator("rect")
    expect(rates).to_have_count(12)


def test_the_run_is_described_and_no_secret_is_shown(visit):
    page = visit.open("?tab=overview")
    described = page.locator("#ngp-numbers .ngv-run")
    for said in ("qwen3-8b-instruct (vllm_model)", "weather", "2026-11-16 14:50 UTC, took 2 min 47 s", "c0ffeec0ff"):
        expect(described).to_contain_text(said)
    expect(described).to_contain_text("with uncommitted changes")
    expect(described).to_contain_text("repeats 4, temperature 0.7")
    page.locator("#ngp-numbers summary", has_text="Config").click()
    expect(page.locator("#ngp-numbers .ngv-fold pre")).to_contain_text('"openai_api_key": "****"')
    assert SECRET not in page.content()
    visit.open("?tab=browse")
    expect(page.locator("#ngp-header .ngp-run")).to_have_text(
        "qwen3-8b-instruct (vllm_model) · weather · 2026-11-16 14:50 UTC"
    )


def test_failures_of_the_file_beside_are_counted_by_kind(visit):
    page = visit.open("?tab=overview")
    expect(page.locator("#ngp-numbers tr", has_text="model")).to_contain_text("the endpoint answered 503 three times")
    expect(page.locator("#ngp-numbers tr", has_text="timeout")).to_contain_text("no answer within 60 s")
    expect(page.locator(".ngv-tile", has_text="failed rollouts")).to_contain_text("3")
    expect(page.locator(".ngv-tile", has_text="crashed tool")).to_contain_text("8")


def test_broken_lines_are_counted_and_listed_with_their_reason(visit):
    page = visit.open("?tab=overview")
    expect(page.locator("#ngp-header")).to_contain_text("2 broken lines")
    expect(page.locator("#ngp-numbers tr", has_text="line 4")).to_contain_text("not valid JSON")
    expect(page.locator("#ngp-numbers")).to_contain_text("a JSON object is expected, this is a list")


def test_one_agent_can_be_looked_at_alone(visit):
    page = visit.open("?tab=overview")
    page.locator("#ngp-numbers").get_by_text("careful_agent").click()
    visit.settle()
    assert "of=careful_agent" in visit.place
    expect(page.locator("#ngp-numbers tr", has_text="mean/reward").locator("td").last).to_have_text("48 of ?")


def test_a_file_without_rewards_shows_what_it_has(visit, files):
    page = visit.open(f"?file={files.number('dataset.jsonl')}")
    expect(page.locator("#ngp-header")).to_contain_text("96 tasks")
    expect(page.locator("#ngp-overview figure")).to_have_count(0)
