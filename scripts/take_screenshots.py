# SPDX-License-Identifier: Apache-2.0
"""Take the screenshots for the documentation: run the demo, open the viewer in headless Chromium, save what it shows.

    make screenshots

The demo runs a real model with a fixed seed, so that the screenshots show what a reader gets. They are reduced to 256
colors, so that they are small enough to commit.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from nemo_gym._viewer.page.location import Location

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WORK = ROOT / "results" / "screenshots"
SIZE = {"width": 1280, "height": 800}
MAX_BYTES = 150_000
READY = "() => document.documentElement.dataset.ngpPlace && !document.documentElement.classList.contains('ngp-busy')"
PICTURES = {
    "viewer.png": Location(),
    "viewer-rollout.png": Location(tab="rollout", row=0),
}


def main() -> None:
    """Take every screenshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=Path, help="show these instead of running the demo")
    rollouts = parser.parse_args().rollouts or run_demo()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("screenshots: Chromium is not installed.\nhint: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with run_viewer(rollouts) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE, color_scheme="light")
        for name, location in PICTURES.items():
            take(page, f"{address.rstrip('/')}/{location.to_query()}", IMAGES / name)
        chromium.close()


def run_demo() -> Path:
    """Run the demo and return its rollouts file."""
    output = WORK / "rollouts.jsonl"
    gym = [sys.executable, "-m", "nemo_gym.cli.main"]
    subprocess.run([*gym, "demo", "--seed", "0", "--output", str(output)], cwd=ROOT, check=True)
    return output


@contextmanager
def run_viewer(rollouts: Path) -> Iterator[str]:
    """Run `gym view` and yield its address."""
    command = [sys.executable, "-m", "nemo_gym.cli.main", "view", rollouts.name]
    viewer = subprocess.Popen(command, cwd=rollouts.parent, env=os.environ, stdout=subprocess.PIPE, text=True)
    assert viewer.stdout is not None
    try:
        line = viewer.stdout.readline()
        if " at http" not in line:
            raise SystemExit(f"screenshots: `gym view` did not start; it printed {line!r}")
        yield line.split(" at ")[1].strip()
    finally:
        viewer.terminate()
        viewer.wait()


def take(page: Page, address: str, target: Path) -> None:
    """Open `address` and save a screenshot to `target`."""
    page.goto(address)
    page.wait_for_function(READY)
    page.screenshot(path=target, animations="disabled")
    with Image.open(target) as picture:
        picture.convert("RGB").quantize(256).save(target, optimize=True)
    if target.stat().st_size > MAX_BYTES:
        raise SystemExit(f"screenshots: {target} has {target.stat().st_size} bytes, more than {MAX_BYTES}")
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
