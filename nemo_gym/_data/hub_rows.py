# SPDX-License-Identifier: Apache-2.0
"""Convert the data files of dataset repositories to JSONL: jsonl, json, csv, tsv and parquet.

Rows of JSONL are passed on byte by byte once they are known to be objects. Values that JSON does not have become text:
dates as ISO 8601, decimals as written, bytes as base64.
"""

import base64
import csv
import datetime
import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import orjson

from nemo_gym._data.lines import DataFileError, read_raw_rows
from nemo_gym._util.atomic_files import atomic_writer
from nemo_gym._util.jsonl_files import loads_line

_PARQUET_BATCH_ROWS = 1000
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_COMPRESSIONS = {".gz": ("jsonl", "json", "csv", "tsv"), ".zst": ("jsonl",), ".zstd": ("jsonl",)}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
# No more digits than a float holds, and no leading zeros: those are identifiers, such as postal codes.
_FLOAT = re.compile(r"-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_READINGS: tuple[Callable[[str], Any], ...] = (
    lambda cell: int(cell) if _INTEGER.fullmatch(cell) else None,
    lambda cell: float(cell) if _FLOAT.fullmatch(cell) else None,
    _BOOLEANS.get,
)
"""What a cell may be if it is more than a text; None if it is not."""


def read_kind(path: str) -> str | None:
    """Return the type of a data file by its name: jsonl, json, csv, tsv or parquet; None for any other file."""
    name = PurePosixPath(path.lower())
    compressed = _COMPRESSIONS.get(name.suffix)
    kind = _KINDS.get(name.with_suffix("").suffix if compressed else name.suffix)
    return kind if compressed is None or kind in compressed else None


def write_jsonl(files: Sequence[tuple[str, Path]], target: Path) -> int:
    """Write the rows of `files` (name in the repository, local path) into one file; return how many there are."""
    count = 0
    with atomic_writer(target) as output:
        for name, path in files:
            for line in iter_json_lines(name, path):
                output.write(line + b"\n")
                count += 1
    return count


def iter_json_lines(name: str, path: Path) -> Iterator[bytes]:
    """Yield the rows of a data file as lines of JSON; raise DataFileError or JsonlError for what cannot be read."""
    kind = read_kind(name)
    if kind == "parquet":
        return _encode_rows(_read_parquet(name, path))
    if kind in _DELIMITERS:
        return _encode_rows(_read_csv(name, path, _DELIMITERS[kind]))
    if kind == "json" and _is_one_value(path):
        return _encode_rows(_read_json(name, path))
    return _read_json_lines(name, path)


def _encode_rows(rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (orjson.dumps(row, default=_encode_other, option=orjson.OPT_NON_STR_KEYS) for row in rows)


def _encode_other(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def _read_json_lines(name: str, path: Path) -> Iterator[bytes]:
    for number, raw in read_raw_rows(path):
        loads_line(raw, name, number)
        yield raw


def _is_one_value(path: Path) -> bool:
    """Return whether a .json file is a list or one multi-line object, rather than one object per line."""
    first = next((raw for _, raw in read_raw_rows(path)), b"")
    try:
        return not isinstance(orjson.loads(first), dict)
    except orjson.JSONDecodeError:
        return True


def _read_json(name: str, path: Path) -> Iterator[dict[str, Any]]:
    try:
        with _open_binary(path) as file:
            content = orjson.loads(file.read().removeprefix(_BOM))
    except orjson.JSONDecodeError as error:
        raise DataFileError(f"{name}: not valid JSON: {error}") from error
    rows = [content] if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataFileError(
            f"{name}: a list of objects is expected.\nhint: download the file unchanged, with --artifact"
        )
    yield from rows


def _read_csv(name: str, path: Path, delimiter: str) -> Iterator[dict[str, Any]]:
    """Yield rows; a column is numbers or booleans if all its cells are, else text; an empty cell is null."""
    columns, *_ = [*islice(_read_cells(name, path, delimiter), 1), []]
    readings: list[list[Callable[[str], Any]]] = [list(_READINGS) for _ in columns]
    for row in islice(_read_cells(name, path, delimiter), 1, None):
        for possible, cell in zip(readings, row, strict=True):
            possible[:] = [read for read in possible if not cell or read(cell) is not None]
    chosen = [next(iter(possible), str) for possible in readings]
    for row in islice(_read_cells(name, path, delimiter), 1, None):
        yield {column: read(cell) if cell else None for column, read, cell in zip(columns, chosen, row, strict=True)}


def _read_cells(name: str, path: Path, delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 30)
    width: int | None = None
    with io.TextIOWrapper(_open_binary(path), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter)
        try:
            for row in reader:
                if not row:
                    continue
                width = len(row) if width is None else width
                if len(row) != width:
                    raise DataFileError(f"{name}:{reader.line_num}: {len(row)} cells, but {width} columns")
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataFileError(f"{name}:{reader.line_num + 1}: not valid CSV: {error}") from error


def _read_parquet(name: str, path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataFileError(
            f"{name} is a parquet file, which needs a package that is not installed.\nhint: pip install pyarrow"
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_PARQUET_BATCH_ROWS):
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise DataFileError(f"{name}: not a valid parquet file: {error}") from error


def _open_binary(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    if is_gzip:
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")
