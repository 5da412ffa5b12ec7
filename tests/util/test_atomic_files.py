# SPDX-License-Identifier: Apache-2.0
"""Files that are complete or not there."""

import errno
import os

import pytest

from nemo_gym._util.atomic_files import atomic_writer, write_atomically


def test_a_file_is_written_with_its_folders(tmp_path):
    write_atomically(tmp_path / "a" / "b.txt", "héllo")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "héllo".encode()


def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old")

    def write_half():
        with atomic_writer(path) as file:
            file.write(b"ne")
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old")
    with atomic_writer(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_full_disk_is_named_by_the_file_that_found_it_full(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("nemo_gym._util.atomic_files.os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*b\.txt'"):
        write_atomically(tmp_path / "b.txt", "text")
    assert list(tmp_path.iterdir()) == []
