# SPDX-License-Identifier: Apache-2.0
"""Reading the lines of an input."""

import gzip
import os
import subprocess
import sys
import threading

import pytest

from nemo_gym._rollouts.input_lines import InputError, InputNotFoundError, is_stream, read_input
from nemo_gym.errors import GymError

LINES = [(1, b'{"a": 1}'), (4, b'{"a": 2}')]
CONTENT = b'\xef\xbb\xbf{"a": 1}\r\n\n  \r\n{"a": 2}'


def test_lines_come_numbered_without_bom_line_ends_and_blank_lines(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(CONTENT)
    assert list(read_input(tmp_path / "a.jsonl")) == LINES


def test_gzip_is_recognized_by_its_content_under_any_name(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(CONTENT[:14]) + gzip.compress(CONTENT[14:]))
    (tmp_path / "plain.gz").write_bytes(CONTENT)
    assert list(read_input(tmp_path / "a.jsonl")) == LINES
    assert list(read_input(tmp_path / "plain.gz")) == LINES


def test_zstd_is_read_as_gzip_is(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(CONTENT[:14]) + zstandard.compress(CONTENT[14:]))
    assert list(read_input(tmp_path / "a.jsonl.zst")) == LINES


def test_zstd_that_ends_early_is_an_error(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.zst").write_bytes(zstandard.compress(CONTENT * 100)[:-3])
    with pytest.raises(InputError, match=r"a\.zst: the compressed data is damaged or ends early[^$]*zstd -t"):
        list(read_input(tmp_path / "a.zst"))


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"x", b"\x1f", b"\x28\xb5"],
    ids=["empty", "newline", "one byte", "half a magic", "half of another"],
)
def test_tiny_files_can_be_read(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert list(read_input(tmp_path / "a")) == ([(1, content)] if content.strip() else [])


def test_a_row_of_ten_megabytes_is_one_line(tmp_path):
    row = b'"' + b"x" * 10_000_000 + b'"'
    (tmp_path / "a").write_bytes(row + b"\n" + row)
    assert [(number, len(line)) for number, line in read_input(tmp_path / "a")] == [(1, len(row)), (2, len(row))]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_pipe_is_read_as_it_comes_even_byte_by_byte(tmp_path, packed):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    content = gzip.compress(CONTENT) if packed else CONTENT

    def feed() -> None:
        with open(fifo, "wb", buffering=0) as pipe:
            for at in range(len(content)):
                pipe.write(content[at : at + 1])

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert is_stream(fifo)
    assert list(read_input(fifo)) == LINES
    feeder.join()


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_an_input(name):
    code = f"from nemo_gym._rollouts.input_lines import read_input; print(list(read_input({name!r})))"
    done = subprocess.run([sys.executable, "-c", code], input=CONTENT, capture_output=True, check=True, timeout=300)
    assert eval(done.stdout) == LINES


def test_a_pipe_is_left_alone_after_the_last_line_that_is_wanted(tmp_path):
    read, write = os.pipe()
    os.write(write, b"1\n2\n")
    lines = read_input(f"/dev/fd/{read}")
    assert next(lines) == (1, b"1")
    os.close(write)
    os.close(read)
    lines.close()


def test_a_file_that_is_not_there_is_named_with_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputNotFoundError, match=r"'gone\.jsonl' was not found") as raised:
        list(read_input("gone.jsonl"))
    assert str(tmp_path) in str(raised.value)
    assert isinstance(raised.value, GymError)
    assert isinstance(raised.value, FileNotFoundError)


def test_a_folder_is_not_an_input(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        list(read_input(tmp_path))


@pytest.mark.parametrize("damage", [lambda b: b[:-30], lambda b: b[:2000] + b"????" + b[2004:]], ids=["cut", "changed"])
def test_damaged_gzip_is_named_by_file_and_line(tmp_path, damage):
    rows = b"".join(b"%d %s\n" % (number, os.urandom(40).hex().encode()) for number in range(1000))
    (tmp_path / "a.gz").write_bytes(damage(gzip.compress(rows)))
    with pytest.raises(InputError, match=r"a\.gz:\d+: the compressed data is damaged or ends early"):
        list(read_input(tmp_path / "a.gz"))
