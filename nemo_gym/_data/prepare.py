# SPDX-License-Identifier: Apache-2.0
"""The rows of one dataset on their way out: parsed, prompted, checked, measured, and written with their agent.

All in one pass, and a row is held only while it passes. What happens to a file with bad rows in it is up to the caller.
"""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from nemo_gym._data.dataset_metrics import DatasetMetrics
from nemo_gym._data.lines import read_raw_rows
from nemo_gym._data.offending import Offending
from nemo_gym._data.params import Asked, KnownSettings
from nemo_gym._data.rows import BadRow, Row, RowChecker, parsed, prompted
from nemo_gym._data.sources import Source
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME

_ROWS_BETWEEN_REPORTS = 10_000

Write = Callable[[bytes], Any]
Ready = tuple[Row, Asked, bytes]


def prepare_dataset(
    source: Source,
    write: Write,
    metrics: DatasetMetrics,
    known: KnownSettings,
    progress: Callable[[int], None] | None = None,
) -> Offending:
    """Write and measure the good rows of `source`; the others are in the result, and after one nothing is written."""
    offending, repeats = Offending(source.path), source.repeats
    for number, (row, asked, line) in enumerate(ready_rows(source, known, offending), 1):
        metrics.add(row, asked, len(line))
        if not offending.count:
            write(line * repeats)
        if progress is not None and number % _ROWS_BETWEEN_REPORTS == 0:
            progress(number)
    return offending


def ready_rows(source: Source, known: KnownSettings, offending: Offending, *, check: bool = True) -> Iterator[Ready]:
    """The good rows of `source`, once each, with their create params taken apart and the line they are written as.

    The others go to `offending`. Without `check` any JSON object is good.
    """
    check_row, finish, prompt = RowChecker(known).check, _Finisher(source.agent), source.prompt
    for number, raw in read_raw_rows(source.path, source.start, source.end):
        try:
            row = parsed(raw)
            if prompt is not None:
                row = prompted(row, prompt)
            asked = check_row(row) if check else (known.of({}), None)
        except BadRow as bad:
            offending.add(number, bad)
        else:
            yield row, asked, finish(row, raw if prompt is None else None)


class _Finisher:
    """Gives rows the agent that they are for."""

    def __init__(self, agent: str) -> None:
        self._ref = {"type": "responses_api_agents", "name": agent}
        self._tail = b', "' + AGENT_REF_KEY_NAME.encode() + b'": ' + orjson.dumps(self._ref) + b"}\n"

    def __call__(self, row: Row, raw: bytes | None) -> bytes:
        """The line of `row`; `raw` is how it came, if nothing was changed since."""
        if raw is None or AGENT_REF_KEY_NAME in row or not row:
            return orjson.dumps({**row, AGENT_REF_KEY_NAME: self._ref}) + b"\n"
        # Added to the text as it came: spacing, order, long numbers all stay what they were.
        return raw.rstrip()[:-1] + self._tail
