# SPDX-License-Identifier: Apache-2.0
"""A Hub that holds samples, and benchmarks copied to a root of their own, so that the clone stays as it is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.benchmarks import load_prepare
from tests.benchmarks.samples import SAMPLES
from tests.support.fake_hub import hub as hub  # a fixture

Prepare = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A search root with all benchmarks, not one of them prepared."""
    for name in SAMPLES:
        shutil.copytree(
            PARENT_DIR / "benchmarks" / name,
            tmp_path / "benchmarks" / name,
            ignore=shutil.ignore_patterns("__pycache__", "*benchmark.jsonl"),
        )
    return tmp_path


@pytest.fixture
def prepare(root: Path, hub: Any) -> Prepare:
    """The rows that a benchmark's script writes, given a Hub that has its sample or what `files` says."""

    def run(name: str, files: dict[str, bytes] | None = None, **arguments: Any) -> list[dict[str, Any]]:
        sample = SAMPLES[name]
        hub.add_dataset(sample.repo_id, files if files is not None else sample.files())
        script = root / "benchmarks" / name / "prepare.py"
        written = load_prepare(script, [root])(**arguments)
        assert written == script.parent / "data" / f"{name}_benchmark.jsonl"
        assert [path.name for path in written.parent.iterdir() if path.suffix != ""] == [written.name]
        return [json.loads(line) for line in written.read_text().splitlines()]

    return run
