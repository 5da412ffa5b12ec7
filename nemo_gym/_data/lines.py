# SPDX-License-Identifier: Apache-2.0
"""Read the rows of a dataset as raw lines, as a stream: plain, gzip or zstd, detected from the first bytes.

The content of a line is not examined here, except for what no editor shows: byte order mark, line ends, blank lines.
"""

import gzip
import io
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 1 << 20
# Small, because it may expand a hundredfold when decompressed.
_ZSTD_CHUNK_BYTES = 1 << 14
_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_COMPRESSED_SUFFIXES = frozenset({".gz", ".gzip", ".zst", ".zstd"})


class DataFileError(GymError, OSError):
    """A dataset file cannot be read or written."""


def read_raw_rows(
    path: str | os.PathLike[str], start: int | None = None, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the line number (from 1) and content, without its line end, of each row of `path`, skipping blank lines.

    `start` and `end` select rows, counted from 0, like a slice; nothing is read beyond the end.
    """
    try:
        with open(path, "rb", buffering=_BUFFER_BYTES) as file:
            yield from itertools.islice(read_raw_stream(Path(path), file), start, end)
    except DataFileError:
        raise
    except OSError as error:
        raise DataFileError(f"{path}:1: reading failed: {error.strerror or error}") from error


def read_raw_stream(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of `path`, which is open as `file` and may be a pipe; see `read_raw_rows`."""
    number = 0
    try:
        for number, raw in enumerate(_decompress(path, file), 1):
            if number == 1:
                raw = raw.removeprefix(_BOM)
            line = raw.rstrip(b"\r\n")
            if line and not line.isspace():
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _report_damage(f"{path}:{number + 1}", "gzip -t", error) from error
    except OSError as error:
        if isinstance(error, GymError):
            raise
        raise DataFileError(f"{path}:{number + 1}: reading failed: {error.strerror or error}") from error


def strip_suffixes(path: Path) -> str:
    """Return the name of a dataset file without its suffixes: `train` for `train.jsonl` and `train.jsonl.gz`."""
    return Path(path.stem).stem if path.suffix in _COMPRESSED_SUFFIXES else path.stem


def _decompress(path: Path, file: BinaryIO) -> BinaryIO:
    head = file.read(len(_GZIP_MAGIC))
    # Read more only if it may be zstd: a pipe may have nothing more to deliver for now.
    if _ZSTD_MAGIC.startswith(head):
        head += file.read(len(_ZSTD_MAGIC) - len(head))
    whole: io.RawIOBase = _WithHead(head, file)
    if head == _GZIP_MAGIC:
        whole = cast(io.RawIOBase, gzip.GzipFile(fileobj=io.BufferedReader(whole, _BUFFER_BYTES)))
    elif head == _ZSTD_MAGIC:
        whole = _ZstdStream(path, cast(BinaryIO, io.BufferedReader(whole, _BUFFER_BYTES)))
    return cast(BinaryIO, io.BufferedReader(whole, _BUFFER_BYTES))


class _WithHead(io.RawIOBase):
    """A stream with its peeked first bytes put back: a pipe cannot be rewound."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        chunk = self._head or self._rest.read1(len(view))  # type: ignore[attr-defined]
        self._head = b""
        view[: len(chunk)] = chunk
        return len(chunk)


class _ZstdStream(io.RawIOBase):
    """The content of a zstd file of any number of frames. One that ends early is an error, not a shorter file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise DataFileError(
                f"{path} is compressed with zstd, which needs a package that is not installed.\n"
                f"hint: pip install 'nemo-gym[data]', or decompress the file with `zstd -d`"
            ) from error
        self._path = path
        self._file = file
        self._damage = zstandard.ZstdError
        self._new_frame: Callable[[], zstandard.ZstdDecompressionObj] = zstandard.ZstdDecompressor().decompressobj
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = b""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        while not self._content and self._decompress():
            pass
        view = memoryview(buffer)
        count = min(len(view), len(self._content))
        view[:count] = self._content[:count]
        self._content = self._content[count:]
        return count

    def _decompress(self) -> bool:
        """Decompress one more chunk; return False at the end."""
        self._compressed = self._compressed or self._file.read(_ZSTD_CHUNK_BYTES)
        if not self._compressed:
            if self._frame is not None:
                raise _report_damage(str(self._path), "zstd -t", "a frame is not complete")
            return False
        self._frame = self._frame or self._new_frame()
        try:
            self._content = memoryview(self._frame.decompress(self._compressed))
        except self._damage as error:
            raise _report_damage(str(self._path), "zstd -t", error) from error
        self._compressed = self._frame.unused_data
        if self._frame.eof:
            self._frame = None
        return True


def _report_damage(where: str, check: str, error: object) -> DataFileError:
    return DataFileError(
        f"{where}: the compressed data is damaged or ends early ({error}).\n"
        f"hint: check it with `{check}`, and copy or download it again"
    )
