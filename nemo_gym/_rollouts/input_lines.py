# SPDX-License-Identifier: Apache-2.0
"""Read the lines of an input once, as a stream: plain, gzip or zstd; a file, a pipe or standard input.

The content of a line is not examined here, except for what no editor shows: byte order mark, line ends, blank lines.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nemo_gym._data.lines import DataFileError, read_raw_stream
from nemo_gym.errors import GymError

_BUFFER_BYTES = 1 << 20
_STDIN = 0


class InputError(GymError, ValueError):
    """An input file cannot be read."""


class InputNotFoundError(InputError, FileNotFoundError):
    """An input file does not exist."""


def read_input(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and content of every non-blank line of `path`, without its line end.

    `-` is standard input. Gzip and zstd are detected from the first bytes, not from the name.
    """
    with _open_file(path) as file:
        try:
            yield from read_raw_stream(Path(path), file)
        except DataFileError as error:
            raise InputError(str(error)) from error


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` can be read only once: a pipe, a terminal, standard input."""
    return str(path) == "-" or not (Path(path).is_file() or Path(path).is_dir())


def _open_file(path: str | os.PathLike[str]) -> BinaryIO:
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
