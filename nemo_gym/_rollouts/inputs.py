# SPDX-License-Identifier: Apache-2.0
"""The lines of an input file as a stream: plain, gzip or zstd, a file, a pipe or standard input, read once.

What is on a line is not looked at here, save for what no editor shows: byte order mark, line ends, blank lines.
"""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from nemo_gym._data.lines import ZSTD_MAGIC, DataFileError, ZstdStream
from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_STDIN = 0


class InputError(GymError, ValueError):
    """An input file cannot be read."""


class InputNotFoundError(InputError, FileNotFoundError):
    """An input file is not there."""


def read_input(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and content of every line of `path` that is not blank, without its line end.

    `-` is standard input. Whether the content is gzip or zstd is seen from its first bytes, not from the name.
    """
    number = 0
    with _opened(path) as file:
        try:
            for number, raw in enumerate(_decompressed(Path(path), file), 1):
                line = raw.removeprefix(_BOM) if number == 1 else raw
                line = line.rstrip(b"\r\n")
                if line and not line.isspace():
                    yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(
                f"{path}:{number + 1}: the gzip data is damaged or ends early ({error}).\n"
                f"hint: check it with `gzip -t`, and copy or download it again"
            ) from error
        except DataFileError as error:
            raise InputError(str(error)) from error
        except OSError as error:
            raise InputError(f"{path}:{number + 1}: reading failed: {error.strerror or error}") from error


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether `path` can be read only once: a pipe, a terminal, standard input."""
    return str(path) == "-" or not (Path(path).is_file() or Path(path).is_dir())


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        if str(path) == "-":
            return open(os.dup(_STDIN), "rb", buffering=_BUFFER_BYTES)
        return open(path, "rb", buffering=_BUFFER_BYTES)
    except FileNotFoundError as error:
        raise InputNotFoundError(
            f"input file {str(path)!r} was not found.\n"
            f"hint: paths are relative to the current folder, {os.getcwd()!r}; `-` reads standard input"
        ) from error
    except IsADirectoryError as error:
        raise InputError(f"input {str(path)!r} is a folder.\nhint: give a JSONL file in it") from error
    except OSError as error:
        raise InputError(f"input file {str(path)!r} cannot be opened: {error.strerror or error}") from error


def _decompressed(path: Path, file: BinaryIO) -> BinaryIO:
    head = file.read(len(_GZIP_MAGIC))
    # The rest only of what may be zstd: a pipe may have nothing more to say for now.
    if ZSTD_MAGIC.startswith(head):
        head += file.read(len(ZSTD_MAGIC) - len(head))
    whole = io.BufferedReader(_WithHead(head, file), _BUFFER_BYTES)
    if head == _GZIP_MAGIC:
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=whole), _BUFFER_BYTES))
    if head == ZSTD_MAGIC:
        return cast(BinaryIO, io.BufferedReader(ZstdStream(path, cast(BinaryIO, whole)), _BUFFER_BYTES))
    return cast(BinaryIO, whole)


class _WithHead(io.RawIOBase):
    """A stream whose first bytes were taken to look at them, put together again: a pipe cannot be rewound."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        chunk = self._head or self._rest.read1(len(view))  # type: ignore[attr-defined]
        self._head = b""
        view[: len(chunk)] = chunk
        return len(chunk)
