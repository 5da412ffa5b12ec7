# SPDX-License-Identifier: Apache-2.0
"""Drafts: whole files or none, even after a process that was killed or interrupted."""

import json
import subprocess
import sys

import pytest

from nemo_gym._data.collate import Draft

KILLED = """
import os, signal, sys
from pathlib import Path
from nemo_gym._data.collate import Draft
with Draft(Path(sys.argv[1])) as draft:
    draft.file.write(b"half")
    draft.file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
# Control-C after 10,000 rows, when a part of the draft is on the disk.
INTERRUPTED = """
import glob, os, signal
from nemo_gym.cli.dataset import collate
from nemo_gym.cli.main import main

def interrupt(*_):
    assert os.path.getsize(*glob.glob(".train_prepare*.tmp"))
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
collate._progress = interrupt
raise SystemExit(main())
"""
CONFIG = """
game:
  resources_servers:
    game: {entrypoint: app.py, domain: games}
player:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: game}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: train, type: train, jsonl_fpath: train.jsonl, license: MIT}
"""


def test_a_draft_that_is_not_published_leaves_no_trace(tmp_path):
    with Draft(tmp_path / "a") as draft:
        draft.file.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_is_published_takes_the_place_of_the_target(tmp_path):
    (tmp_path / "a").write_text("old")
    with Draft(tmp_path / "a") as draft:
        draft.file.write(b"new")
        assert (tmp_path / "a").read_text() == "old"
        draft.publish()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new"}


def test_the_draft_of_a_killed_process_is_removed_by_the_next(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a"], timeout=300)
    assert len(list(tmp_path.iterdir())) == 1
    with Draft(tmp_path / "b"):
        assert len(list(tmp_path.iterdir())) == 2, "drafts of other files are left alone"
    with Draft(tmp_path / "a") as draft:
        assert list(tmp_path.iterdir()) == [draft.path]


def test_a_draft_that_somebody_works_on_is_left_alone(tmp_path):
    with Draft(tmp_path / "a") as theirs:
        theirs.file.write(b"theirs")
        theirs.file.flush()
        with Draft(tmp_path / "a"):
            pass
        theirs.publish()
    assert (tmp_path / "a").read_bytes() == b"theirs"


def test_control_c_while_rows_are_collated_leaves_nothing_half_written(tmp_path):
    row = json.dumps({"responses_create_params": {"input": "x " * 100}, "answer": "y"}) + "\n"
    (tmp_path / "train.jsonl").write_text(row * 10_001)
    (tmp_path / "config.yaml").write_text(CONFIG)
    flags = ["dataset", "collate", "--config", "config.yaml", "--output-dir", "out", "--mode", "train_preparation"]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *flags], cwd=tmp_path, capture_output=True, timeout=500)
    assert done.returncode == 130, done.stderr
    assert (
        done.stderr.decode()
        .splitlines()[-1]
        .startswith("interrupted: no file is half-written; run the same command again")
    )
    assert b"Traceback" not in done.stderr
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"train.jsonl", "config.yaml"}


@pytest.mark.parametrize("name", ["a" * 250])
def test_a_long_name_is_no_obstacle(tmp_path, name):
    with Draft(tmp_path / name) as draft:
        draft.publish()
    assert (tmp_path / name).read_bytes() == b""
