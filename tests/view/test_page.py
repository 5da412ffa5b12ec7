# SPDX-License-Identifier: Apache-2.0
"""The page as a whole: files that grow, narrow and wide, light and dark, nothing from elsewhere."""

import json
import os
import signal
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.view import rows
from tests.view.conftest import gym_view

LOOKS = {
    f"{scheme}-{width}": {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    for scheme in ("light", "dark")
    for width in (1280, 390)
}
TABS = {
    "overview": "?tab=overview",
    "browse": "?tab=browse",
    "tasks": "?tab=browse&group=1",
    "rollout": "?tab=rollout&row=5",
    "compare": "?tab=compare&against=1",
}


@pytest.mark.parametrize("new_visit", LOOKS.values(), ids=LOOKS, indirect=True)
def test_every_tab_fits_the_screen_in_light_and_dark(new_visit, request):
    visit = new_visit
    look = request.node.callspec.id
    for name, query in TABS.items():
        page = visit.open(query)
        if name == "overview":
            expect(page.locator("#ngp-overview .vega-embed svg.marks")).to_have_count(6)
        visit.keep(f"{name}-{look}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    dark = page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(230, 232, 238)"
    assert dark == look.startswith("dark")


def test_the_theme_can_be_switched_and_stays(new_visit):
    visit = new_visit
    page = visit.open("?tab=browse")
    page.get_by_label("Switch between light and dark").click()
    page.wait_for_function("() => document.body.classList.contains('dark')")
    visit.settle()
    page.locator("#ngp-listing tbody tr").first.click()
    expect(page.locator("#ngp-conversation h1")).to_be_visible()
    assert "__theme=dark" in visit.place
    assert "row=0" in visit.place


def test_nothing_is_loaded_from_elsewhere(new_visit, address):
    visit = new_visit
    for query in TABS.values():
        visit.open(query)
    assert [url for url in visit.asked if not url.startswith((address, "data:", "blob:"))] == []


def test_the_page_is_held_to_its_own_server(visit):
    page = visit.open("?tab=browse")
    blocked = "() => fetch('http://203.0.113.7/').then(() => 'sent', () => 'blocked')"
    assert page.evaluate(blocked) == "blocked"
    assert [error for error in visit.errors if "Content Security Policy" in error]
    visit.errors.clear()


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


def test_a_taken_port_gives_way_to_the_next_and_both_pages_work(address, files, chromium):
    taken = int(address.rpartition(":")[2])
    with gym_view("run.jsonl", "--port", str(taken), cwd=files.folder) as url:
        assert int(url.rpartition(":")[2]) > taken
        page = chromium.new_page()
        page.goto(f"{url}/?tab=browse")
        expect(page.locator("#ngp-listing tbody tr")).to_have_count(25, timeout=15_000)
        page.close()


def test_ctrl_c_ends_it_at_once_although_a_page_is_open(files, chromium):
    command = [sys.executable, "-m", "nemo_gym.cli.main", "view", "other.jsonl", "--port", "0"]
    process = subprocess.Popen(
        command,
        cwd=files.folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    page = chromium.new_page()
    page.goto(process.stdout.readline().split(" at ")[1].strip())
    expect(page.locator("#ngp-numbers")).to_contain_text("mean reward", timeout=15_000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    page.close()
    assert process.returncode == 0
    assert said == "Press Ctrl-C to stop.\n"
