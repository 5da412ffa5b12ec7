# SPDX-License-Identifier: Apache-2.0
"""Dataset files as they come: compressed or not, with the marks that editors and other systems leave."""

import gzip
import io
from pathlib import Path

import pytest
import zstandard

from nemo_gym._data.lines import DataFileError, read_raw_rows, read_raw_stream, strip_suffixes

ROWS = [b'{"a":1}', b'{"a":2}', b'{"a":3}']


def rows_of(path, start=None, end=None):
    return list(read_raw_rows(path, start, end))


def written(tmp_path, content):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"\n".join(ROWS),
        b"\n".join(ROWS) + b"\n",
        b"\r\n".join(ROWS) + b"\r\n",
        b"\xef\xbb\xbf" + b"\n".join(ROWS),
        gzip.compress(b"\n".join(ROWS)),
        gzip.compress(ROWS[0] + b"\n") + gzip.compress(b"\n".join(ROWS[1:])),
        zstandard.compress(b"\n".join(ROWS)),
        zstandard.compress(ROWS[0] + b"\n") + zstandard.compress(b"\n".join(ROWS[1:])),
        gzip.compress(b"\xef\xbb\xbf" + b"\r\n".join(ROWS)),
    ],
    ids=["no last newline", "plain", "crlf", "bom", "gzip", "gzip in two", "zstd", "zstd in two", "gzip, bom and crlf"],
)
def test_the_rows_are_the_same_whatever_they_are_wrapped_in(tmp_path, content):
    assert rows_of(written(tmp_path, content)) == list(enumerate(ROWS, 1))


class ByteByByte(io.RawIOBase):
    """A pipe whose writer is slow: every read finds one byte."""

    def __init__(self, content):
        self._rest = iter(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        for byte in self._rest:
            buffer[0] = byte
            return 1
        return 0


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_a_pipe_whose_first_read_finds_one_byte_is_still_told_apart(pack):
    pipe = io.BufferedReader(ByteByByte(pack(b"\n".join(ROWS))))
    assert list(read_raw_stream(Path("pipe"), pipe)) == list(enumerate(ROWS, 1))


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path):
    path = written(tmp_path, b"\n" + ROWS[0] + b"\n  \t\n" + ROWS[1] + b"\n\n")
    assert rows_of(path) == [(2, ROWS[0]), (4, ROWS[1])]


def test_an_empty_file_has_no_rows(tmp_path):
    assert rows_of(written(tmp_path, b"")) == []


@pytest.mark.parametrize(("start", "end"), [(None, None), (1, None), (None, 2), (1, 2), (2, 2), (0, 99), (5, None)])
def test_rows_are_cut_as_a_slice_does(tmp_path, start, end):
    path = written(tmp_path, b"\n\n".join(ROWS))
    assert [raw for _, raw in rows_of(path, start, end)] == ROWS[start:end]


def test_a_row_of_ten_megabytes_is_a_row(tmp_path):
    long = b'{"a":"' + b"x" * 10_000_000 + b'"}'
    assert [len(raw) for _, raw in rows_of(written(tmp_path, zstandard.compress(long)))] == [len(long)]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:60] + b"!!!!" + data[64:]])
def test_damaged_data_is_an_error_that_names_the_file(tmp_path, compress, damage):
    path = written(tmp_path, damage(compress(b"".join(ROWS[0] + bytes([n]) for n in range(256)))))
    with pytest.raises(DataFileError, match=r"rows\.jsonl.*the compressed data is damaged"):
        rows_of(path)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("train.jsonl", "train"), ("train.jsonl.gz", "train"), ("a.b.jsonl.zst", "a.b"), ("train", "train")],
)
def test_the_stem_of_a_file_is_its_name_without_suffixes(name, stem):
    assert strip_suffixes(Path("data") / name) == stem
