# SPDX-License-Identifier: Apache-2.0
"""Cache what was read from a large file beside it (`.<name>.ngview`), so that it opens at once next time.

A cache is trusted only if the file is the one it was made from, possibly longer; otherwise the file is read again.
If its folder is not writable, the cache goes into a folder that the caller names.
"""

import hashlib
import logging
import os
import sys
from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from nemo_gym._util.atomic_files import atomic_writer
from nemo_gym._viewer.files.columns import COLUMN_NAMES, MOST_FIELDS, Columns, LineProblem, Names, Scanner

LOG = logging.getLogger(__name__)
# Increase the number whenever facts are extracted differently: older caches are then ignored.
MAGIC = b"nemo-gym view 4\n"
_PROBE_BYTES = 4096
_LONGEST_HEADER = 1 << 28


@dataclass(frozen=True)
class Identity:
    """Distinguishes a file from another one of the same name."""

    inode: int
    size: int
    mtime_ns: int
    head: str
    """A digest of its first bytes."""
    tail: str
    """A digest of the last bytes that were read."""
    end: int
    """How far it was read."""

    @classmethod
    def of(cls, file: BinaryIO, end: int, stat: os.stat_result) -> "Identity":
        """Identify a file that was read up to `end`; `stat` was taken before, so that later changes show."""
        head = _hash_range(file, 0, min(end, _PROBE_BYTES))
        tail = _hash_range(file, max(0, end - _PROBE_BYTES), end)
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, head, tail, end)

    def still_matches(self, file: BinaryIO) -> bool:
        """Return whether the part of `file` that was read is still there, apparently unchanged."""
        now = Identity.of(file, self.end, os.fstat(file.fileno()))
        if now.inode != self.inode or now.size < self.end or (now.head, now.tail) != (self.head, self.tail):
            return False
        # A log grows, or loses a torn end that was never read; a changed file of the same length was edited.
        return now.size != self.size or now.mtime_ns == self.mtime_ns


def load_cache(path: Path, user_cache_dir: Path | None) -> tuple[Scanner, Identity] | None:
    """Return what an earlier session read from `path`; None without a cache, or if the file has changed since."""
    for place in _list_cache_paths(path, user_cache_dir):
        try:
            with open(place, "rb") as file, open(path, "rb") as source:
                found = _read(file)
                if found is not None and found[1].still_matches(source):
                    return found
        except OSError:
            continue
        except (ValueError, KeyError, TypeError, EOFError) as error:
            LOG.warning("%s cannot be used and is ignored: %s", place, error)
    return None


def save_cache(path: Path, user_cache_dir: Path | None, scanner: Scanner, identity: Identity) -> None:
    """Write the cache into the first writable folder, if there is one."""
    for place in _list_cache_paths(path, user_cache_dir):
        try:
            with atomic_writer(place) as file:
                _write(file, scanner, identity)
            return
        except OSError as error:
            LOG.debug("%s cannot be written: %s", place, error)


def _list_cache_paths(path: Path, user_cache_dir: Path | None) -> list[Path]:
    places = [path.with_name(f".{path.name}.ngview")]
    if user_cache_dir is not None:
        name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=16).hexdigest()
        places.append(user_cache_dir / f"{name}.ngview")
    return places


def _write(file: BinaryIO, scanner: Scanner, identity: Identity) -> None:
    columns = scanner.columns
    header = {
        "byteorder": sys.byteorder,
        "identity": asdict(identity),
        "n_rows": columns.n_rows,
        "n_lines": scanner.n_lines,
        "tail_open": scanner.tail_open,
        "kinds": scanner.kinds,
        "problems": [asdict(problem) for problem in scanner.problems],
        "n_problems": scanner.n_problems,
        "agents": list(columns.agents),
        "finishes": list(columns.finishes),
        "failures": list(columns.failures),
        "toolsets": [list(tools) for tools in columns.toolsets],
        "fields": list(columns.fields),
        "more_fields": list(columns.more_fields),
    }
    file.write(MAGIC + orjson.dumps(header) + b"\n")
    for name in COLUMN_NAMES:
        getattr(columns, name).tofile(file)
    for column in columns.fields.values():
        column.tofile(file)


def _read(file: BinaryIO) -> tuple[Scanner, Identity] | None:
    if file.read(len(MAGIC)) != MAGIC:
        return None
    header = orjson.loads(file.readline(_LONGEST_HEADER))
    if header["byteorder"] != sys.byteorder:
        return None
    identity = Identity(**header["identity"])
    scanner = Scanner(
        columns=_read_columns(file, header),
        end=identity.end,
        n_lines=header["n_lines"],
        tail_open=header["tail_open"],
        problems=[LineProblem(**problem) for problem in header["problems"]],
        n_problems=header["n_problems"],
        kinds=Counter(header["kinds"]),
    )
    if file.read(1):
        raise ValueError("it is longer than it says")
    return scanner, identity


def _read_columns(file: BinaryIO, header: dict[str, Any]) -> Columns:
    columns = Columns()
    count = header["n_rows"]
    for name in COLUMN_NAMES:
        getattr(columns, name).fromfile(file, count)
    for name in header["fields"][:MOST_FIELDS]:
        columns.fields[name] = array("d")
        columns.fields[name].fromfile(file, count)
    columns.agents = Names(header["agents"])
    columns.finishes = Names(header["finishes"])
    columns.failures = Names(header["failures"])
    columns.toolsets = Names(map(tuple, header["toolsets"]))
    columns.more_fields = dict.fromkeys(header["more_fields"])
    named = (("agent", "agents"), ("finish", "finishes"), ("failure", "failures"), ("tools", "toolsets"))
    for numbers, names in ((getattr(columns, numbers), header[names]) for numbers, names in named):
        if len(numbers) and not (min(numbers) >= 0 and max(numbers) < len(names)):
            raise ValueError("it refers to names that it does not hold")
    columns.publish()
    return columns


def _hash_range(file: BinaryIO, start: int, stop: int) -> str:
    file.seek(start)
    return hashlib.blake2b(file.read(stop - start), digest_size=16).hexdigest()
