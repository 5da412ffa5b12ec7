# SPDX-License-Identifier: Apache-2.0
"""A report that `gym view --export` wrote, in a browser that has no network."""

import re
from contextlib import chdir

import pytest
from playwright.sync_api import expect

from nemo_gym.cli.main import run_command
from tests.viewer.browser.conftest import PATIENCE_MS, SECRET, Visit
from tests.viewer.browser.rows import HOSTILE


@pytest.fixture(scope="module")
def report(files):
    with chdir(files.folder):
        assert run_command(["view", "run.jsonl", "hostile.jsonl", "--export", "report", "--export-rollouts", "6"]) == 0
    return files.folder / "report"


@pytest.fixture
def opened(report, chromium):
    context = chromium.new_context(offline=True)
    context.set_default_timeout(PATIENCE_MS)
    visit = Visit(context.new_page(), report.as_uri())
    visit.page.goto(f"{report.as_uri()}/index.html")
    yield visit
    context.close()
    assert visit.errors == []
    assert visit.strangers == []


def test_it_fits_the_screen_in_light_and_dark(opened):
    see_that_it_fits(opened, "report")
    opened.page.locator("a[href*='rollout']").first.click()
    expect(opened.page.locator("h1")).to_have_text(re.compile(r"Task \d+ · Rollout \d"))
    see_that_it_fits(opened, "report-rollout")


def see_that_it_fits(opened, name):
    for scheme in ("light", "dark"):
        opened.prefer(scheme)
        for width in (390, 1280):
            opened.resize(width)
            opened.keep(f"{name}-{scheme}-{width}")
            assert opened.fits(), (name, scheme, width)


def test_it_leads_from_the_numbers_to_a_rollout_and_back(opened):
    page = opened.page
    expect(page.locator("body")).to_contain_text("mean/reward")
    expect(page.locator("svg").first).to_be_visible()
    page.locator("a[href*='rollout']").first.click()
    expect(page.locator(".ngv-user")).to_contain_text("should I take a coat?")
    page.locator("nav a").first.click()
    expect(page.locator("body")).to_contain_text("mean/reward")


def test_it_says_why_a_rollout_has_its_score_and_shows_no_secret(opened, report):
    page = opened.page
    expect(page.locator(".ngv-run")).to_contain_text("qwen3-8b-instruct (vllm_model)")
    page.locator("a[href*='rollout']").first.click()
    expect(page.locator(".ngv-why .ngv-side").first).to_have_text(re.compile(r"Target\s*expected_answer\s*no coat"))
    assert not [path.name for path in report.rglob("*.html") if SECRET in path.read_text()]


def test_what_models_write_is_text(opened):
    page = opened.page
    page.get_by_role("link", name="Task 0 · Rollout 1").last.click()
    expect(page.locator(".ngv-user .ngv-text")).to_have_text([HOSTILE, HOSTILE])  # in the main line, and in a branch
    expect(page.locator(".ngv-removed")).to_have_text(f"-{HOSTILE}")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, strong, a[href^=javascript]").count() == 0
