# SPDX-License-Identifier: Apache-2.0
"""Every environment can be played at once; its larger sets are made on demand, always the same, whole or not at all."""

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from nemo_gym import PARENT_DIR

ENVIRONMENTS = PARENT_DIR / "environments"
NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/prepare.py"))
# To make these takes seconds.
SLOW_SPLITS = {"calendar": {"train"}, "workplace_assistant": {"train"}}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").strip("\n").split("\n")]


@pytest.fixture(params=NAMES)
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A prepare script that believes it lies in another folder."""
    module = importlib.import_module(f"environments.{request.param}.prepare")
    (tmp_path / request.param).mkdir()
    monkeypatch.setattr(module, "__file__", str(tmp_path / request.param / "prepare.py"))
    if request.param == "reasoning_gym":  # with all of its hundred tasks it takes seconds
        monkeypatch.setattr(module, "list_tasks", lambda: ["gcd", "chain_sum", "maze"])
    return module


def data_of(script: ModuleType) -> Path:
    return Path(script.__file__).parent / "data"


def name_of(script: ModuleType) -> str:
    return script.__name__.split(".")[1]


def quick_splits(script: ModuleType) -> list[str]:
    return [split for split in script.SPLITS if split not in SLOW_SPLITS.get(name_of(script), ())]


def test_the_examples_are_there(script):
    shipped = rows_of(ENVIRONMENTS / name_of(script) / "data" / "example.jsonl")
    assert len(shipped) == 5
    assert rows_of(script.prepare("example")) == shipped


def test_the_config_names_the_files_that_prepare_writes(script):
    config = yaml.safe_load((ENVIRONMENTS / name_of(script) / "config.yaml").read_text())
    agents = (block["responses_api_agents"] for block in config.values() if "responses_api_agents" in block)
    (agent,) = (agent for by_name in agents for agent in by_name.values() if "datasets" in agent)
    files = {dataset["type"]: dataset["jsonl_fpath"] for dataset in agent["datasets"]}
    assert files == {split: f"environments/{name_of(script)}/data/{split}.jsonl" for split in script.SPLITS}
    assert set(files) == {"train", "validation", "example"}


def test_a_split_is_written_and_always_the_same(script):
    for split in quick_splits(script):
        path = script.prepare(split)
        first = path.read_bytes()
        assert path == data_of(script) / f"{split}.jsonl"
        assert len(rows_of(path)) >= 5
        assert script.prepare(split).read_bytes() == first
    assert sorted(path.stem for path in data_of(script).iterdir()) == sorted(quick_splits(script))


def test_validation_is_what_is_written_if_nothing_is_said(script):
    assert script.prepare().name == "validation.jsonl"


def test_no_row_is_in_two_splits(script):
    lines = [line for split in quick_splits(script) for line in script.prepare(split).read_text().splitlines()]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
    ("name", "size"), [("blackjack", 500), ("calendar", 100), ("fix_the_code", 24), ("workplace_assistant", 100)]
)
def test_the_validation_set_has_the_size_that_is_documented(name, size):
    splits = importlib.import_module(f"environments.{name}.prepare").SPLITS
    assert len(list(splits["validation"]())) == size


@pytest.mark.parametrize(
    ("name", "server", "key"),
    [
        ("code_gen", "code_gen", "hash_id"),
        ("fix_the_code", "workspace_tasks", "task_id"),
        ("instruction_following", "instruction_following", "id"),
    ],
)
def test_every_task_is_in_one_split(name, server, key):
    splits = importlib.import_module(f"environments.{name}.prepare").SPLITS
    every = importlib.import_module(f"resources_servers.{server}.generate_data").all_rows()
    ids = [row[key] for rows_of_split in splits.values() for row in rows_of_split()]
    assert len(ids) == len(set(ids)) == len(every)


def test_every_task_of_reasoning_gym_has_its_rows_and_they_differ(monkeypatch):
    prepare = importlib.import_module("environments.reasoning_gym.prepare")
    monkeypatch.setattr(prepare, "list_tasks", lambda: ["gcd", "chain_sum", "maze"])
    validation, train = (list(prepare.SPLITS[split]()) for split in ("validation", "train"))
    assert (len(validation), len(train)) == (6, 30)
    assert len({row["question"] for row in (*validation, *train)}) > 30


def test_a_split_that_is_not_there_is_named(script):
    with pytest.raises(ValueError, match="no split 'test', but"):
        script.prepare("test")
    assert not data_of(script).exists()


# --- the helper -------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal
from environments._splits import main, write_split

def broken():
    yield {"n": 1}
    END

SPLITS = {"validation": lambda: [{"n": "é"}], "train": lambda: [{"n": 3}], "broken": broken}

def prepare(split="validation"):
    return write_split(__file__, SPLITS, split)

main(prepare)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script of one's own, as a user does."""

    def run(*words: str, end: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "prepare.py").write_text(SCRIPT.replace("END", end or "pass"))
        command = [sys.executable, "prepare.py", *words]
        environment = {**os.environ, "PYTHONPATH": str(PARENT_DIR)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_a_script_writes_what_it_is_told_to_and_without_a_word_what_is_not_shipped(run, tmp_path):
    assert run("train").returncode == 0
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["train.jsonl"]
    assert run().returncode == 0
    assert (tmp_path / "data" / "validation.jsonl").read_text() == '{"n": "é"}\n'


def test_a_mistyped_split_is_told_without_a_traceback(run, tmp_path):
    done = run("tran")
    assert (done.returncode, done.stderr) == (1, "Error: there is no split 'tran', but validation, train, broken\n")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("end", "code"), [("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL), ("raise RuntimeError", 1)]
)
def test_a_script_that_does_not_come_to_its_end_leaves_the_file_as_it_was(run, tmp_path, end, code):
    assert run("broken").returncode == 0
    before = (tmp_path / "data" / "broken.jsonl").read_text()
    assert run("broken", end=end).returncode == code
    assert (tmp_path / "data" / "broken.jsonl").read_text() == before
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["broken.jsonl"]
