# SPDX-License-Identifier: Apache-2.0
"""The page as a whole: files that grow, narrow and wide, light and dark, nothing from elsewhere."""

import json

import pytest
from playwright.sync_api import expect

from tests.viewer.browser import rows

TABS = {
    "overview": "?tab=overview",
    "browse": "?tab=browse",
    "tasks": "?tab=browse&group=1",
    "rollout": "?tab=rollout&task=3&min=1",
    "tokens": "?tab=rollout&row=0",
    "compare": "?tab=compare&against=1",
}


PHONE, DESK = 390, 1280


def test_every_tab_fits_the_screen_and_loads_nothing_from_elsewhere(visit):
    visit.asked.clear()
    for name, query in TABS.items():
        visit.resize(PHONE)
        page = visit.open(query)
        if name == "overview":
            expect(page.locator("#ngp-overview figure")).to_have_count(7)
        if name == "tokens":
            page.locator("#ngp-conversation summary", has_text="Tokens").click()
        see_that_it_fits(visit, name)
    page.locator("#ngp-comparison tbody a").first.click()
    expect(page.locator("#ngv-first-difference")).to_be_visible()
    see_that_it_fits(visit, "pair")
    assert visit.strangers == []


def see_that_it_fits(visit, name):
    for width in (PHONE, DESK):
        visit.resize(width)
        visit.keep(f"{name}-{width}")
        assert visit.fits(), (name, width)


def test_the_theme_is_that_of_the_system_can_be_switched_and_stays(new_visit):
    visit = new_visit
    visit.prefer("dark")
    page = visit.open("?tab=browse")
    see_colors(page, ink="rgb(230, 232, 238)", paper="rgb(16, 18, 22)")
    page.get_by_label("Switch between light and dark").click()
    see_colors(page, ink="rgb(28, 31, 38)", paper="rgb(255, 255, 255)")
    visit.settle()
    page.locator("#ngp-listing tbody tr").first.click()
    expect(page.locator("#ngp-conversation h1")).to_be_visible()
    assert "__theme=light" in visit.place
    assert "row=0" in visit.place


def see_colors(page, ink, paper):
    expect(page.locator("#ngp-header h1")).to_have_css("color", ink)
    expect(page.locator("gradio-app")).to_have_css("background-color", paper)


def test_the_page_is_held_to_its_own_server(visit):
    page = visit.open("?tab=browse")
    before = list(visit.asked)
    blocked = "() => fetch('http://203.0.113.7/').then(() => 'sent', () => 'blocked')"
    assert page.evaluate(blocked) == "blocked"
    assert [error for error in visit.errors if "Content Security Policy" in error]
    visit.errors.clear()
    visit.asked[:] = before


def test_a_growing_file_is_followed_while_the_page_is_open(visit, files):
    number, path = files.number("growing.jsonl"), files.folder / "growing.jsonl"
    page = visit.open(f"?tab=browse&file={number}")
    before = len(path.read_text().splitlines())
    with path.open("a") as file:
        file.write(json.dumps(rows.rollout(7, before)) + "\n")
        file.flush()
        expect(page.locator("#ngp-listing tbody tr")).to_have_count(before + 1)
        expect(page.locator("#ngp-header")).to_contain_text(f"{before + 1} rollouts")
        line = json.dumps(rows.rollout(8, before)) + "\n"
        file.write(line[:200])
        file.flush()
        expect(page.locator("#ngp-header")).to_contain_text("last line incomplete")
        file.write(line[200:])
    expect(page.locator("#ngp-listing tbody tr")).to_have_count(before + 2)
    expect(page.locator("#ngp-header")).not_to_contain_text("last line incomplete")


@pytest.mark.parametrize(
    ("tab", "said"),
    [
        ("overview", "The file holds no rows that can be shown."),
        ("browse", "The file holds no rows that can be shown."),
        ("rollout", "There is nothing to show yet."),
        ("compare&with=0.1", "There are no two rollouts of one task to compare."),
    ],
)
def test_an_empty_file_says_so_on_every_tab(visit, files, tab, said):
    page = visit.open(f"?tab={tab}&file={files.number('empty.jsonl')}")
    expect(page.locator("main")).to_contain_text(said)
    visit.keep(f"empty-{tab.partition('&')[0]}")
