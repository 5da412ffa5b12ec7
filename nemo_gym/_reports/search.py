# SPDX-License-Identifier: Apache-2.0
"""Find a text in the raw lines of a file, a slice of time at a time, so that a gigabyte never blocks a page.

Letters of the Latin alphabet match in either case. The whole line is searched, names of fields included.
"""

import json
import os
import time
from array import array
from bisect import bisect_right

import orjson

from nemo_gym._reports.columns import Columns

_CHUNK_BYTES = 1 << 20


class TextSearch:
    """The rows of one file that hold a text, as far as the file was searched."""

    def __init__(self, text: str) -> None:
        # A character beyond ASCII may be written as itself or as an escape, depending on who wrote the file.
        written = {orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode()}
        self._needles = [needle.lower() for needle in sorted(written)]
        self.hits = array("I")
        """In file order."""
        self.n_searched = 0

    def advance(self, path: str | os.PathLike[str], columns: Columns, n_rows: int, budget_s: float) -> None:
        """Search on, up to row `n_rows`, until the time is used up; at least one chunk is searched."""
        deadline = time.monotonic() + budget_s
        with open(path, "rb", buffering=0) as file:
            while self.n_searched < n_rows:
                self._search_chunk(file.fileno(), columns, n_rows)
                if time.monotonic() >= deadline:
                    break

    def _search_chunk(self, fd: int, columns: Columns, n_rows: int) -> None:
        first = self.n_searched
        start = columns.offset[first]
        stop = max(bisect_right(columns.offset, start + _CHUNK_BYTES, first, n_rows) - 1, first + 1)
        chunk = os.pread(fd, columns.offset[stop - 1] + columns.size[stop - 1] - start, start).lower()
        found: set[int] = set()
        for needle in self._needles:
            at = chunk.find(needle)
            while at >= 0:
                row = bisect_right(columns.offset, start + at, first, stop) - 1
                end = columns.offset[row] + columns.size[row] - start
                # A match between two rows is one in a broken line, or one that begins in a row and ends beyond it.
                if at + len(needle) <= end:
                    found.add(row)
                at = chunk.find(needle, max(end, at + 1))
        self.hits.extend(sorted(found))
        self.n_searched = stop
