# SPDX-License-Identifier: Apache-2.0
"""What the guides tell a reader to type works, in a folder of the reader's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR

GUIDES = sorted((PARENT_DIR / "docs" / "guides").glob("*.md"))
BLOCK = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S)
EXPECTED = {
    "collect-rollouts": ["20 scored of 20 requested", "20 scored of 20 requested rollouts, 5 tasks"],
    "write-an-environment": ["✓ Config is valid.", "4 passed", "reward: 1.0"],
    "call-servers": ["counter: 7"],
}


def script_of(guide: Path, folder: Path) -> str:
    """The guide's commands; its titled blocks are written to files where they stand in the text."""
    steps = ["set -euo pipefail"]
    for number, block in enumerate(BLOCK.finditer(guide.read_text())):
        if block["title"]:
            source = folder / f"block{number}"
            source.write_text(block["text"])
            steps.append(f"mkdir -p $(dirname {block['title']}) && cp {source} {block['title']}")
        elif block["language"] == "bash":
            steps.append(block["text"])
    return "\n".join(steps)


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_guide_can_be_followed_from_top_to_bottom(guide, tmp_path, unused_tcp_port):
    work = tmp_path / "work"
    work.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HEAD_PORT": str(unused_tcp_port),
    }
    done = subprocess.run(
        ["bash", "-c", script_of(guide, tmp_path)],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    log = (work / "servers.log").read_text() if (work / "servers.log").exists() else ""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log}"
    for text in EXPECTED[guide.stem]:
        assert text in done.stdout


def test_links_between_pages_lead_somewhere():
    pages = [PARENT_DIR / "README.md", PARENT_DIR / "CONTRIBUTING.md", *(PARENT_DIR / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_readme_is_short():
    assert len((PARENT_DIR / "README.md").read_text().splitlines()) <= 150
