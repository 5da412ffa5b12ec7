# SPDX-License-Identifier: Apache-2.0
"""A 1 GB rollouts file in the viewer, in a real browser: how long until one can look, and what it takes.

Wall time, since that is what a reader waits for: from the start of the command to the first rows on the page, and from
a click to the rollout. The file was never opened before, so the index is built meanwhile.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Browser, sync_playwright

from nemo_gym._bench.report import LeftOut, Row
from nemo_gym._bench.rollout_files import write_rollouts

_SIZE_BYTES = 1 << 30
_OPENED = 25
_USABLE_BOUND_S = 5.0
_OPEN_BOUND_MS = 300
_MEMORY_BOUND_MB = 600
_FIRST_ROWS = "#ngp-listing tr[data-row]"
_OPEN = """query => new Promise((done) => {
    const link = document.createElement("a");
    link.href = query;
    document.body.append(link);
    const began = performance.now();
    const look = () => {
        const root = document.documentElement;
        const there = root.dataset.ngpPlace === query && !root.classList.contains("ngp-busy");
        if (there) { link.remove(); done(performance.now() - began); } else requestAnimationFrame(look);
    };
    link.click();
    look();
})"""


def run() -> list[Row]:
    """Open the file, wait for the index, open rollouts here and there."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise LeftOut("there is no Chromium.\nhint: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="perf-viewer-") as folder, _browser(chromium) as browser:
        path = Path(folder) / "rollouts.jsonl"
        n_rows = write_rollouts(path, _SIZE_BYTES)
        first = _measured(browser, path, n_rows)
        again = _measured(browser, path, n_rows)
    size = f"{_SIZE_BYTES / (1 << 30):.0f} GB"
    return [
        Row(f"viewer: {size} usable after its start", first.usable_s, "s", _USABLE_BOUND_S),
        Row(f"viewer: {size} usable, index kept from before", again.usable_s, "s", _USABLE_BOUND_S),
        Row(f"viewer: {size} indexed after its start", first.indexed_s, "s"),
        Row("viewer: open any rollout, median", statistics.median(first.opened_ms), "ms", _OPEN_BOUND_MS),
        Row("viewer: open any rollout, slowest", max(first.opened_ms), "ms", _OPEN_BOUND_MS),
        Row("viewer: peak memory", max(first.memory_mb, again.memory_mb), "MB resident", _MEMORY_BOUND_MB),
    ]


class _Figures:
    usable_s = indexed_s = memory_mb = 0.0

    def __init__(self) -> None:
        self.opened_ms = list[float]()


def _measured(browser: Browser, path: Path, n_rows: int) -> _Figures:
    figures = _Figures()
    began = time.perf_counter()
    with _viewer(path, figures) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/?tab=browse", timeout=60_000)
        page.wait_for_selector(_FIRST_ROWS, timeout=60_000)
        figures.usable_s = time.perf_counter() - began
        page.wait_for_function("() => !document.querySelector('#ngp-header progress')", timeout=300_000)
        figures.indexed_s = time.perf_counter() - began
        for row in random.Random(0).sample(range(n_rows), _OPENED):
            figures.opened_ms.append(page.evaluate(_OPEN, f"?tab=rollout&row={row}"))
        page.goto(f"{address}/?tab=overview")
        page.wait_for_selector("#ngp-numbers .ngv-tile", timeout=60_000)
        page.close()
    return figures


@contextmanager
def _viewer(path: Path, figures: _Figures) -> Iterator[str]:
    """`gym view` on any free port; its memory is watched."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "nemo_gym.cli.main", "view", str(path), "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(process.pid, figures, done))
    watch.start()
    try:
        yield process.stdout.readline().split(" at ")[1].strip()
    finally:
        done.set()
        watch.join()
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _watch(pid: int, figures: _Figures, done: threading.Event) -> None:
    watched = psutil.Process(pid)
    while not done.wait(0.1):
        figures.memory_mb = max(figures.memory_mb, watched.memory_info().rss / 1e6)


@contextmanager
def _browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
