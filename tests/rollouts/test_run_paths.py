# SPDX-License-Identifier: Apache-2.0
"""One run at a time for one output."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from nemo_gym._rollouts.run_paths import RunFileError, RunPaths, lock_run

HOLD = "import sys\nfrom nemo_gym._rollouts.run_paths import RunPaths, lock_run\n" \
    "with lock_run(RunPaths.of(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"  # fmt: skip


def test_a_second_run_is_told_who_holds_the_output_and_a_killed_one_holds_nothing(tmp_path):
    paths = RunPaths.of(tmp_path / "new" / "r.jsonl")
    command = [sys.executable, "-c", HOLD, str(paths.output)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunFileError, match=rf"another run \(process {holder.pid}\) is writing to .*r\.jsonl"):
            with lock_run(paths):
                pass
        with lock_run(RunPaths.of(tmp_path / "other.jsonl")):
            pass
        holder.send_signal(signal.SIGKILL)
    with lock_run(paths):
        assert paths.lock.read_text() == f"{os.getpid()}\n"


def test_the_lock_leaves_no_file_behind_even_if_the_run_fails(tmp_path):
    with pytest.raises(KeyError), lock_run(RunPaths.of(tmp_path / "r.jsonl")):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_gets_a_warning(tmp_path, monkeypatch, caplog):
    def unsupported(fd, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("nemo_gym._rollouts.run_paths.fcntl.flock", unsupported)
    with lock_run(RunPaths.of(tmp_path / "r.jsonl")):
        assert "cannot be locked" in caplog.text


def test_a_disk_without_room_for_the_holders_name_can_be_locked_all_the_same(tmp_path, monkeypatch):
    def full(fd, data, offset):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("nemo_gym._rollouts.run_paths.os.pwrite", full)
    paths = RunPaths.of(tmp_path / "r.jsonl")
    with lock_run(paths), pytest.raises(RunFileError, match="another run"), lock_run(paths):
        pass


def test_an_output_whose_folder_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFileError, match=r"file/r\.jsonl could not be written"), \
            lock_run(RunPaths.of(tmp_path / "file" / "r.jsonl")):  # fmt: skip
        pass
