# SPDX-License-Identifier: Apache-2.0
"""A running `gym view` and a real browser, both shared by all tests that look at the page."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.viewer.browser import rows

SECRET = "sk-nobody-may-see-this"
PATIENCE_MS = 240_000
"""No test is about speed: on a busy machine a page may take its time."""
expect.set_options(timeout=PATIENCE_MS)
SCREENSHOTS = os.environ.get("VIEW_SCREENSHOTS")
"""The folder for pictures of the pages; by default there are none, since no test looks at them."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BROWSER_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio", "--no-first-run"),
    *("--disable-extensions", "--disable-sync", "--disable-component-update", "--disable-background-networking"),
    # A page that nobody looks at goes on like others.
    *("--disable-background-timer-throttling", "--disable-renderer-backgrounding"),
    "--disable-backgrounding-occluded-windows",
)
READY = "() => document.documentElement.dataset.ngpPlace && !document.documentElement.classList.contains('ngp-busy')"


@dataclass(frozen=True)
class Viewer:
    """A running `gym view`, and the address that it printed."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def gym_view(*arguments: str, cwd: Path, stderr: int | IO[str] | None = None) -> Iterator[Viewer]:
    """`gym view` as a user runs it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nemo_gym.cli.main", "view", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        said = process.stdout.readline()
        assert " at http://" in said, f"ended with {process.wait()} and said {said!r}"
        yield Viewer(process, said.split(" at ")[1].strip())
    finally:
        process.terminate()
        process.wait(300)
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
    run = [rows.with_calls(row) if row["_ng_task_index"] == 3 else row for row in run]
    run = [rows.with_crashed_tool(row) if row["_ng_task_index"] == 5 else row for row in run]
    run[0] = rows.with_tokens(run[0])
    rows.write(folder / "run.jsonl", [*run[:3], '{"broken": ', *run[3:], '["not an object"]'])
    rows.write(
        folder / "run_failures.jsonl",
        [
            rows.failure(13, "model", "the endpoint answered 503 three times"),
            rows.failure(14, "timeout", "no answer within 60 s"),
            rows.failure(15, "model", "the endpoint answered 503 three times"),
        ],
    )
    plan = [rows.planned(task, repeat) for task in range(16) for repeat in range(4)]
    rows.write(folder / "run_materialized_inputs.jsonl", plan)
    (folder / "run_run.json").write_text(json.dumps(rows.manifest(SECRET)))
    rows.write(folder / "other.jsonl", rows.run(12, 4, seed=2, skill=0.7))
    rows.write(folder / "hostile.jsonl", [rows.hostile(0), rows.hostile(0) | {"_ng_rollout_index": 1}])
    rows.write(folder / "examples.jsonl", [rows.with_examples(rows.rollout(1, 0))])
    rows.write(folder / "programs.jsonl", [rows.rollout(1, 0, **rows.by_program("coat.py"))])
    rows.write(folder / "growing.jsonl", [rows.rollout(0, 0)])
    rows.write(folder / "empty.jsonl", [])
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
    names = ("run", "other", "hostile", "growing", "inputs", "dataset", "profile", "empty", "run_failures", "examples")
    return Files(folder, tuple(f"{name}.jsonl" for name in (*names, "programs")))


@pytest.fixture(scope="session")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a browser takes orders that runs for all modules: what it has loaded and compiled, it keeps."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; hint: apt-get install chromium")
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    command = [CHROMIUM, *BROWSER_FLAGS, profile, "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    reader = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        said = next((line for line in process.stderr if "DevTools listening on " in line), "")
        assert said, f"{CHROMIUM} ended with {process.wait()}"
        reader.start()  # a full pipe would stop it
        yield said.split()[-1]
    finally:
        process.terminate()
        process.wait(300)
        if reader.ident is not None:
            reader.join(300)
        process.stderr.close()


@pytest.fixture(scope="session")
def address(files: Files, devtools: str) -> Iterator[str]:
    """Where the shared viewer is. In the end it is stopped as a user stops it, while its page is still open."""
    notes = files.folder / "notes.txt"
    with notes.open("w") as stderr, gym_view(*files.names, "--port", "0", cwd=files.folder, stderr=stderr) as viewer:
        yield viewer.address
        viewer.process.send_signal(signal.SIGINT)
        assert viewer.process.wait(300) == 0
    assert notes.read_text() == "Press Ctrl-C to stop.\n"


@pytest.fixture(scope="module")
def chromium(devtools: str) -> Iterator[Browser]:
    """A hand on the browser; that of Playwright holds the event loop of its thread, so it is let go after a module."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(devtools)
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

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """From the next load on, with these colors."""
        self.page.emulate_media(color_scheme=scheme)

    def resize(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 844})

    def fits(self) -> bool:
        """Whether nothing is wider than the screen."""
        return self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    @property
    def strangers(self) -> list[str]:
        """What was asked for that does not come from the viewer itself."""
        return [url for url in self.asked if not url.startswith((self._address, "data:", "blob:"))]

    def settle(self) -> None:
        """Wait until the page shows where it was told to go."""
        self.page.wait_for_function(READY)

    @property
    def place(self) -> str:
        """What the address of the page says after `?`."""
        return self.page.evaluate("location.search")

    def keep(self, name: str) -> None:
        """Keep what it looks like, for people who ask for it."""
        if SCREENSHOTS:
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def reader(chromium: Browser) -> BrowserContext:
    """One who keeps what was loaded once: a page that is opened again is there at once."""
    (context,) = chromium.contexts
    context.set_default_timeout(PATIENCE_MS)
    return context


def new_page(reader: BrowserContext) -> Page:
    page = reader.new_page()
    page.set_viewport_size({"width": 1280, "height": 900})
    return page


@pytest.fixture(scope="module")
def loaded(reader: BrowserContext, address: str) -> Visit:
    """A page of the shared viewer that is loaded once for all tests."""
    open_already = [page for page in reader.pages if page.url.startswith(address)]
    return Visit(open_already[0] if open_already else new_page(reader), address)


@pytest.fixture
def visit(loaded: Visit) -> Iterator[Visit]:
    """The shared page, from which no test may come back with an error."""
    loaded.errors.clear()
    yield loaded
    assert loaded.errors == []


@pytest.fixture
def new_visit(reader: BrowserContext, address: str) -> Iterator[Visit]:
    """A page of its own."""
    visit = Visit(new_page(reader), address)
    yield visit
    visit.page.close()
    assert visit.errors == []
