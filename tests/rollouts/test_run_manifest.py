# SPDX-License-Identifier: Apache-2.0
"""What a run says of itself, and what makes it another run."""

import gzip
import hashlib
import json
import os
import subprocess

import pytest

from nemo_gym._rollouts.run_manifest import (
    Counts,
    InputIdentity,
    Manifest,
    find_differences,
    identify_input,
    read_git_state,
    read_manifest,
    write_manifest,
)
from nemo_gym._rollouts.run_paths import RunFileError

INPUT = InputIdentity(path="a.jsonl", size_bytes=3, sha256="a" * 64)


def manifest(**fields):
    return Manifest(**{"counts": Counts(requested=3), "input": INPUT, **fields})


def test_a_manifest_reads_back_as_it_was_written(tmp_path):
    one = manifest(settings={"repeats": {"a": 2}}, config={"server": {"model": "m"}})
    write_manifest(tmp_path / "r_run.json", one)
    assert read_manifest(tmp_path / "r_run.json") == one
    content = json.loads((tmp_path / "r_run.json").read_text())
    assert content["schema"] == 1
    assert content["status"] == "running"
    assert content["started_at"].endswith("+00:00")
    assert content["nemo_gym"]
    assert content["python"]


def test_values_that_json_does_not_know_are_written_as_text(tmp_path):
    write_manifest(tmp_path / "m", manifest(config={"a": {"path": tmp_path, 3: 4}}))
    assert read_manifest(tmp_path / "m").config == {"a": {"path": str(tmp_path), "3": 4}}


def test_the_end_of_a_run_is_added_and_a_resumed_run_keeps_its_beginning():
    old = manifest(started_at="then")
    again = manifest(started_at="now").continue_from(old)
    assert (again.started_at, again.resumed_at) == ("then", "now")
    ended = again.end("interrupted", Counts(requested=3, scored=1, not_played=2))
    assert (ended.status, ended.counts.scored, ended.ended_at is not None) == ("interrupted", 1, True)


def test_no_manifest_is_no_error_but_a_broken_one_is(tmp_path):
    path = tmp_path / "r_run.json"
    assert read_manifest(path) is None
    path.write_text("{")
    with pytest.raises(RunFileError, match="is not the manifest of a run"):
        read_manifest(path)
    path.write_text('{"schema": 1}')
    with pytest.raises(RunFileError, match="is not the manifest of a run"):
        read_manifest(path)
    path.write_text('{"schema": 99, "nemo_gym": "9.9"}')
    with pytest.raises(RunFileError, match=r"schema 99.*\n.*'9\.9'"):
        read_manifest(path)


def test_an_input_is_known_by_its_bytes_and_a_pipe_by_the_plan_it_gave(tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"x"))
    (tmp_path / "plan").write_bytes(b"plan")
    os.mkfifo(tmp_path / "pipe")
    found = identify_input(tmp_path / "in.gz", tmp_path / "plan")
    assert found.sha256 == hashlib.sha256((tmp_path / "in.gz").read_bytes()).hexdigest()
    assert found.size_bytes == (tmp_path / "in.gz").stat().st_size
    for stream in (tmp_path / "pipe", "-"):
        assert identify_input(stream, tmp_path / "plan").sha256 == hashlib.sha256(b"plan").hexdigest()


def test_the_same_run_has_no_differences_wherever_and_however_fast_it_goes():
    def config(port, url, parallel, key):
        server = {"host": "h", "port": port, "model": "m", "tags": ("a",), "report": 1}
        return {"agent": {"agents": {"x": server}}, "policy_base_url": url, "num_samples_in_parallel": parallel,
                "global_aiohttp_connector_limit_per_host": 100 * port,
                "policy_api_key": key, "head_server": {"port": port}}  # fmt: skip

    old = manifest(config=config(1, "http://a", 4, "****"), settings={"repeats": 2})
    new = manifest(
        config=config(2, "http://b", None, None),
        settings={"repeats": 2},
        input=INPUT.model_copy(update={"path": "moved.jsonl"}),
    )
    assert find_differences(old, new) == []


def test_differences_name_what_changed_with_old_and_new_values():
    old = manifest(settings={"repeats": 2, "limit": None}, config={"a": {"m": "x", "gone": 1}, "report": 1})
    new = manifest(
        settings={"repeats": {"ann": 3}, "limit": None},
        config={"a": {"m": "y" * 200}, "report": 2},
        input=InputIdentity(path="b.jsonl", size_bytes=4, sha256="b" * 64),
    )
    assert find_differences(old, new) == [
        "input: a.jsonl (3 bytes, sha256 aaaaaaaaaaaa…) → b.jsonl (4 bytes, sha256 bbbbbbbbbbbb…)",
        "settings.repeats: 2 → {'ann': 3}",
        "config.a.gone: 1 → not set",
        f"config.a.m: 'x' → '{'y' * 79}…",
        "config.report: 1 → 2",
    ]


def test_a_manifest_compares_equal_to_itself_after_a_round_trip(tmp_path):
    one = manifest(config={"a": (1, 2.0), "b": {3: tmp_path}}, settings={"overrides": {"x": None}})
    write_manifest(tmp_path / "m", one)
    assert find_differences(read_manifest(tmp_path / "m"), one) == []


def test_the_state_of_the_code_is_its_commit_and_whether_files_differ_from_it(tmp_path):
    def git(*arguments):
        who = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True, timeout=300)

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one")
    (tmp_path / "untracked").write_text("1")
    clean = read_git_state(tmp_path)
    assert (len(clean.commit), clean.dirty) == (40, False)
    (tmp_path / "a").write_text("2")
    assert read_git_state(tmp_path).dirty


def test_outside_a_repository_or_without_git_there_is_no_state(tmp_path, monkeypatch):
    assert read_git_state(tmp_path / "gone") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_git_state(tmp_path) is None
