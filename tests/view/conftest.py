# SPDX-License-Identifier: Apache-2.0
"""A running `gym view` and a real browser, both shared by all tests that look at the page."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.view import rows

SCREENSHOTS = Path(__file__).parents[2] / "test-results" / "view"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
READY = "() => document.documentElement.dataset.ngpPlace && !document.documentElement.classList.contains('ngp-busy')"


@contextmanager
def gym_view(*arguments: str, cwd: Path) -> Iterator[str]:
    """`gym view` as a user runs it; yields the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nemo_gym.cli.main", "view", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = process.stdout.readline()
        assert " at http://" in said, f"ended with {process.wait()} and said {said!r}"
        yield said.split(" at ")[1].strip()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@dataclass(frozen=True)
class Files:
    """The files of the shared viewer, by their number in it."""

    folder: Path
    names: tuple[str, ...]

    def number(self, name: str) -> int:
        return self.names.index(name)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("runs")
    run = rows.run(12, 4, seed=1, skill=0.4, agents=("weather_agent", "careful_agent"))
    run[0] = rows.with_tokens(rows.rollout(0, 9, agent="careful_agent"))
    rows.write(folder / "run.jsonl", [*run[:3], '{"broken": ', *run[3:], '["not an object"]'])
    rows.write(
        folder / "run_failures.jsonl",
        [
            rows.failure(13, "model", "the endpoint answered 503 three times"),
            rows.failure(14, "timeout", "no answer within 60 s"),
            rows.failure(15, "model", "the endpoint answered 503 three times"),
        ],
    )
    rows.write(folder / "other.jsonl", rows.run(12, 4, seed=2, skill=0.7))
    rows.write(folder / "hostile.jsonl", [rows.hostile(0), rows.hostile(0) | {"_ng_rollout_index": 1}])
    rows.write(folder / "growing.jsonl", [rows.rollout(0, 0)])
    inputs = [{key: row[key] for key in row if key not in ("response", "reward", "format_reward")} for row in run[:5]]
    rows.write(folder / "inputs.jsonl", inputs)
    rows.write(folder / "dataset.jsonl", [{"responses_create_params": row["responses_create_params"]} for row in run])
    rows.write(
        folder / "profile.jsonl",
        [
            {**row, "avg_reward": 0.25 * task, "std_reward": 0.1, "total_samples": 4, "pass_rate": 0.25 * task}
            for task, row in enumerate(inputs[:4])
        ],
    )
    names = ("run", "other", "hostile", "growing", "inputs", "dataset", "profile", "run_failures")
    return Files(folder, tuple(f"{name}.jsonl" for name in names))


@pytest.fixture(scope="session")
def address(files: Files) -> Iterator[str]:
    """Where the shared viewer is."""
    with gym_view(*files.names, "--port", "0", cwd=files.folder) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; hint: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Visit:
    """A page of the viewer in a browser, and what went wrong in it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self._address = page, address
        self.errors, self.asked = list[str](), list[str]()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, query: str = "?tab=overview") -> Page:
        """Go to a place, and wait until it is shown; a page that is loaded already goes there by itself."""
        if self.page.url.startswith(self._address):
            self.page.evaluate(
                "query => { history.pushState(null, '', query); dispatchEvent(new Event('popstate')) }", query
            )
        else:
            self.page.goto(f"{self._address}/{query}")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until the page shows where it was told to go."""
        self.page.wait_for_function(READY)

    @property
    def place(self) -> str:
        """What the address of the page says after `?`."""
        return self.page.evaluate("location.search")

    def keep(self, name: str) -> None:
        """Keep what it looks like, for people."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="session")
def loaded(chromium: Browser, address: str) -> Iterator[Visit]:
    """A page of the shared viewer that is loaded once for all tests."""
    with _visiting(chromium, address) as visit:
        yield visit


@pytest.fixture
def visit(loaded: Visit) -> Iterator[Visit]:
    """The shared page, from which no test may come back with an error."""
    loaded.errors.clear()
    yield loaded
    assert loaded.errors == []


@pytest.fixture
def new_visit(chromium: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A page of its own; `parametrize` it with options of the browser's context."""
    with _visiting(chromium, address, **getattr(request, "param", {})) as visit:
        yield visit
        assert visit.errors == []


@contextmanager
def _visiting(chromium: Browser, address: str, **options: Any) -> Iterator[Visit]:
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(15_000)
    yield Visit(context.new_page(), address)
    context.close()
