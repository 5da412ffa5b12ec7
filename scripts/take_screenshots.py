# SPDX-License-Identifier: Apache-2.0
"""Take the pictures of the documentation: play the demo, open the viewer in headless Chromium, keep what it shows.

    make screenshots

The demo plays a real model with a fixed seed, so that the pictures show what a reader gets. Pictures are cut down to a
palette of 256 colours: small enough to be committed.
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

from nemo_gym._view.location import Location

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WORK = ROOT / "results" / "screenshots"
SIZE = {"width": 1280, "height": 800}
MOST_BYTES = 150_000
READY = "() => document.documentElement.dataset.ngpPlace && !document.documentElement.classList.contains('ngp-busy')"
PICTURES = {
    "viewer.png": Location(),
    "viewer-rollout.png": Location(tab="rollout", row=0),
}


def main() -> None:
    """Take every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=Path, help="show these instead of playing the demo")
    rollouts = parser.parse_args().rollouts or play_demo()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("screenshots: there is no Chromium.\nhint: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with run_viewer(rollouts) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE, color_scheme="light")
        for name, location in PICTURES.items():
            take(page, f"{address.rstrip('/')}/{location.to_query()}", IMAGES / name)
        chromium.close()


def play_demo() -> Path:
    """Play the demo and return its rollouts file."""
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
        said = viewer.stdout.readline()
        if " at http" not in said:
            raise SystemExit(f"screenshots: `gym view` did not start; it said {said!r}")
        yield said.split(" at ")[1].strip()
    finally:
        viewer.terminate()
        viewer.wait()


def take(page: Page, address: str, target: Path) -> None:
    """Open `address` and keep what it shows in `target`."""
    page.goto(address)
    page.wait_for_function(READY)
    page.screenshot(path=target, animations="disabled")
    with Image.open(target) as picture:
        picture.convert("RGB").quantize(256).save(target, optimize=True)
    if target.stat().st_size > MOST_BYTES:
        raise SystemExit(f"screenshots: {target} has {target.stat().st_size} bytes, more than {MOST_BYTES}")
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
