# SPDX-License-Identifier: Apache-2.0
"""What is recorded of a run, and that it stays whole."""

import asyncio
import errno
import json
import math
import os
import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts import journal as journal_module
from nemo_gym._rollouts.journal import Journal, repair
from nemo_gym._rollouts.outcomes import Failed, Scored, pick_carried_fields
from nemo_gym._rollouts.run_manifest import Counts, InputIdentity, Manifest, read_manifest
from nemo_gym._rollouts.run_paths import RunFileError, RunPaths
from nemo_gym._transport.failures import Failure
from nemo_gym.errors import GymError

ROW = {"_ng_task_index": 4, "_ng_rollout_index": 2, "agent_ref": {"name": "ann"}, "question": "?"}
FAILURE = Failure("tool_server", "http://x/tool", True, "refused")


def manifest(requested=10, **counts):
    return Manifest(
        counts=Counts(requested=requested, **counts), input=InputIdentity(path="i", size_bytes=0, sha256="")
    )


def begun(tmp_path, **options):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    paths.materialized_draft.write_text("plan\n")
    return paths, Journal.begin(paths, manifest(), **options)


def scored(result=None):
    return Scored(
        row=ROW, result={**(result or {"reward": 1.0}), **pick_carried_fields(ROW)}, attempts=1, elapsed_s=0.5
    )


def failed(**fields):
    return Failed(**{"row": ROW, "failure": FAILURE, "attempts": 3, "elapsed_s": 1.23456, **fields})


def record_all(journal, outcomes):
    with journal:
        for outcome in outcomes:
            journal.record(outcome)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_scored_rollout_is_its_result(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.record(scored({"reward": 0.5, "response": {"id": "é"}}))
    keys = {"_ng_task_index": 4, "_ng_rollout_index": 2, "agent_ref": {"name": "ann"}}
    assert rows(paths.output) == [{"reward": 0.5, "response": {"id": "é"}, **keys}]
    assert paths.failures.read_bytes() == b""


def test_a_failed_rollout_says_what_is_known_of_it(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.record(failed())
        journal.record(failed(terminal=True, result={"reward": 0.0, "_ng_failure_class": "judge_failed"}))
    plain, judged = rows(paths.failures)
    assert plain.pop("_ng_failure").pop("at").endswith("+00:00")
    assert plain == {
        "_ng_task_index": 4,
        "_ng_rollout_index": 2,
        "agent_ref": {"name": "ann"},
        "_ng_failure_class": "tool_server",
    }
    block = judged.pop("_ng_failure")
    assert {**block, "at": None} == {
        "schema": 1,
        "kind": "tool_server",
        "boundary": "http://x/tool",
        "retryable": True,
        "message": "refused",
        "attempts": 3,
        "elapsed_s": 1.235,
        "at": None,
    }
    assert (judged["_ng_failure_class"], judged["_ng_failure_terminal"], judged["reward"]) == ("judge_failed", True, 0)
    assert paths.output.read_bytes() == b""


def test_what_is_not_to_be_recorded_is_counted_all_the_same(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.record(scored())
        journal.record(failed(persist=False))
    assert paths.failures.read_bytes() == b""
    ended = read_manifest(paths.manifest)
    assert ended.status == "finished"
    assert ended.ended_at is not None
    assert ended.counts == Counts(requested=10, scored=1, failed=1, not_played=8, by_kind={"tool_server": 1})


def test_a_cancelled_rollout_counts_as_not_played(tmp_path):
    paths, journal = begun(tmp_path)
    record_all(journal, [scored(), failed(failure=Failure("cancelled", "ann/run", True, "stopped"))])
    assert (journal.counts.failed, journal.counts.not_played) == (0, 9)
    assert [row["_ng_failure"]["kind"] for row in rows(paths.failures)] == ["cancelled"]


def test_a_resumed_run_counts_on_and_appends(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.record(scored())
    with Journal.resume(paths, manifest(scored=1, failed=1, by_kind={"agent": 1})) as journal:
        assert read_manifest(paths.manifest).status == "running"
        journal.record(scored())
    assert len(rows(paths.output)) == 2
    assert journal.counts == Counts(requested=10, scored=2, failed=1, not_played=7, by_kind={"agent": 1})


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError, "failed"), (KeyboardInterrupt, "interrupted"), (asyncio.CancelledError, "interrupted")],
)
def test_the_manifest_tells_how_the_run_ended(tmp_path, error, status):
    paths, journal = begun(tmp_path)
    with pytest.raises(error), journal:
        raise error
    assert read_manifest(paths.manifest).status == status


def test_the_manifest_tells_how_many_ran_at_once(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.most_in_flight = 7
        assert read_manifest(paths.manifest).most_in_flight is None
    assert read_manifest(paths.manifest).most_in_flight == 7


def test_only_the_first_end_counts(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.close("interrupted")
    assert read_manifest(paths.manifest).status == "interrupted"


def test_a_new_run_clears_the_files_of_the_old_one_when_it_begins(tmp_path):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    old = (paths.output, paths.failures, paths.aggregate_metrics, paths.materialized, tmp_path / "r.jsonl.torn")
    for path in old:
        path.write_text("old")
    (tmp_path / "other.jsonl").write_text("kept")
    paths.materialized_draft.write_text("plan\n")
    Journal.begin(paths, manifest()).close()
    left = {path.name: path.read_text() for path in tmp_path.iterdir() if path != paths.manifest}
    new = {"r.jsonl": "", "r_failures.jsonl": "", "r_materialized_inputs.jsonl": "plan\n"}
    assert left == {**new, "other.jsonl": "kept"}


def test_a_run_that_dies_while_it_begins_leaves_no_plan_to_resume(tmp_path, monkeypatch):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    paths.materialized.write_text("old plan")
    paths.materialized_draft.write_text("plan\n")

    def die(path, one):
        raise KeyboardInterrupt

    monkeypatch.setattr(journal_module, "write_manifest", die)
    with pytest.raises(KeyboardInterrupt):
        Journal.begin(paths, manifest())
    assert not paths.materialized.exists()


def test_each_record_is_one_write(tmp_path, monkeypatch):
    written = []
    real = os.write
    monkeypatch.setattr(journal_module.os, "write", lambda fd, line: written.append(bytes(line)) or real(fd, line))
    paths, journal = begun(tmp_path)
    with journal:
        journal.record(scored({"reward": 1, "text": "x" * 3_000_000}))
        journal.record(scored())
    assert b"".join(written) == paths.output.read_bytes()
    assert [line.count(b"\n") for line in written] == [1, 1]


def test_text_and_numbers_that_json_cannot_hold_do_not_lose_a_rollout(tmp_path):
    paths, journal = begun(tmp_path)
    with journal:
        journal.record(scored({"reward": 1, "text": "a\ud800b", "n": math.nan, "big": 2**80}))
    (row,) = rows(paths.output)
    assert (row["text"], row["n"], row["big"]) == ("a?b", None, 2**80)


def full_after(count):
    """A stand-in for os.write on a disk with room for `count` more bytes."""
    real, room = os.write, count

    def write(fd, data):
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(fd, bytes(data)[:room])
        room -= done
        return done

    return write


@pytest.mark.parametrize("room", [0, 1, 200, 201])
def test_a_full_disk_is_told_with_no_half_line_left(tmp_path, monkeypatch, room):
    paths, journal = begun(tmp_path)
    monkeypatch.setattr(journal_module.os, "write", full_after(room))
    with pytest.raises(RunFileError, match=r"the disk is full: .*r\.jsonl.*\n.*--resume") as raised:
        record_all(journal, [scored()] * 10)
    assert isinstance(raised.value, GymError)
    content = paths.output.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    assert all(row["reward"] == 1.0 for row in rows(paths.output))
    assert read_manifest(paths.manifest).counts.scored == len(rows(paths.output))
    assert read_manifest(paths.manifest).status == "failed"


def test_a_real_full_disk_leaves_a_run_that_can_be_resumed(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, timeout=60
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("a tmpfs can be mounted only by root, where mounting is allowed")
    try:
        paths, journal = begun(disk)
        with pytest.raises(RunFileError, match="the disk is full"):
            record_all(journal, [scored({"reward": 1.0, "text": "x" * 5000})] * 1000)
        assert paths.output.read_bytes().endswith(b"}\n")
        assert 10 < len(rows(paths.output)) < 60
        assert repair(paths.output) is None
    finally:
        subprocess.run(["umount", str(disk)], check=True, timeout=300)


def test_a_disk_that_refuses_to_keep_what_it_took_stops_the_run(tmp_path, monkeypatch):
    def broken(fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    _, journal = begun(tmp_path, sync_every_s=0)
    monkeypatch.setattr(journal_module.os, "fsync", broken)
    with pytest.raises(RunFileError, match="Input/output error"), journal:
        journal.record(scored())


def test_an_output_that_cannot_be_opened_is_named(tmp_path):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    paths.output.mkdir()
    with pytest.raises(RunFileError, match=r"r\.jsonl could not be written"):
        Journal.resume(paths, manifest())


WHOLE = b'{"a": 1}\n{"b": 2}\n'


@pytest.mark.parametrize("torn", [b'{"c": ', b"\x00\x00\x00", b'{"c": \n', b"[1]\n", b"x" * 200_000])
def test_a_torn_last_line_is_cut_off_and_kept_aside_with_a_notice(tmp_path, torn):
    log = tmp_path / "r.jsonl"
    log.write_bytes(WHOLE + torn)
    assert "r.jsonl was cut off" in repair(log)
    assert log.read_bytes() == WHOLE
    assert (tmp_path / "r.jsonl.torn").read_bytes() == torn.rstrip(b"\n") + b"\n"
    assert repair(log) is None


@pytest.mark.parametrize("content", [b"", WHOLE, b'{"a": "%s"}\n' % (b"x" * 300_000), b"\n", WHOLE + b"\n"])
def test_a_whole_log_is_left_as_it_is(tmp_path, content):
    (tmp_path / "r.jsonl").write_bytes(content)
    assert repair(tmp_path / "r.jsonl") is None
    assert (tmp_path / "r.jsonl").read_bytes() == content


def test_a_last_row_that_lacks_only_its_newline_is_kept(tmp_path):
    (tmp_path / "r.jsonl").write_bytes(WHOLE[:-1])
    assert repair(tmp_path / "r.jsonl") is None
    assert (tmp_path / "r.jsonl").read_bytes() == WHOLE


def test_a_log_that_is_not_there_needs_no_repair(tmp_path):
    assert repair(tmp_path / "gone") is None


@given(values=st.lists(st.text(max_size=20), max_size=5), cut=st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_wherever_a_log_is_cut_every_whole_line_survives(tmp_path_factory, values, cut):
    log = tmp_path_factory.mktemp("log") / "r.jsonl"
    whole = [json.dumps({"v": value}).encode() + b"\n" for value in values]
    content = b"".join(whole)[:cut]
    log.write_bytes(content)
    repair(log)
    kept = log.read_bytes().splitlines(keepends=True)
    assert kept == whole[: len(kept)]
    assert len(kept) >= content.count(b"\n")
