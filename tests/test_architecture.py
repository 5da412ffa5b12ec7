# SPDX-License-Identifier: Apache-2.0
"""The page on the architecture is true: what it names exists, and a rollout takes the way that it shows."""

import importlib
import re
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from nemo_gym import PARENT_DIR, global_config
from nemo_gym.cli.main import main
from tests.support.in_process import ports_given_back

PAGE = (PARENT_DIR / "docs" / "concepts" / "architecture.md").read_text()
WAY = re.findall(r"^\| \d+ \| `([\w.]+)` \|", PAGE, re.M)
INNER = sorted(path.name for path in (PARENT_DIR / "nemo_gym").glob("_*/"))
EXAMPLES = PARENT_DIR / "resources_servers" / "example_single_tool_call" / "data" / "example_rollouts.jsonl"


def find_function(name: str) -> Any:
    """Return the function with the dotted `name`, whose module is the longest part of it that can be imported."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"there is no module of {name}")


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:nemo_gym|scripts|tests|\w+s)/[\w/.]*)`", PAGE))))
def test_every_file_and_folder_that_the_page_names_exists(path):
    assert (PARENT_DIR / path).exists()


@pytest.mark.parametrize("package", [name for name in INNER if name not in ("__pycache__", "_util")])
def test_the_page_says_what_every_package_is_for(package):
    assert f"`nemo_gym/{package}/" in PAGE


def test_the_way_is_short():
    assert 10 < len(WAY) <= 17, "with three wrappers, 20 functions from the command to the line"


def test_a_rollout_takes_the_way_that_is_shown(tmp_path, monkeypatch):
    codes = {find_function(name).__code__: name for name in WAY}
    seen: list[str] = []

    def note_call(frame: FrameType, event: str, argument: object) -> None:
        name = codes.get(frame.f_code) if event == "call" else None
        if name is not None and name not in seen:
            seen.append(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    replies = f"++policy_model.responses_api_models.replay_model.rollouts_jsonl_fpath={EXAMPLES}"
    environment = ["--resources-server", "example_single_tool_call", "--model-type", "replay_model", replies]
    sys.setprofile(note_call)
    threading.setprofile(note_call)
    try:
        with ports_given_back():
            main(["eval", "run", *environment, "--limit", "1", "--output", "rollouts.jsonl", "++head_server.port=0"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert seen == WAY
    assert len((tmp_path / "rollouts.jsonl").read_text().splitlines()) == 1
