# SPDX-License-Identifier: Apache-2.0
"""Raw rows into rows with a filled prompt, from one JSONL file to another, as a stream and all or nothing."""

from collections.abc import Callable
from pathlib import Path

from nemo_gym._data.lines import DataFileError, read_raw_rows
from nemo_gym._data.offending import Offending, raise_if_any
from nemo_gym._data.rows import BadRow, Row, parsed, prompted
from nemo_gym._util.files import atomic_writer
from nemo_gym._util.jsonl import dumps_line

_HINT = "a prompt fills `responses_create_params.input`: rows must have its fields, and no input yet"


def render_rows(source: Path, target: Path, prompt: Callable[[Row], Row]) -> int:
    """Write every row of `source` with its prompt to `target`; OffendingRows, and no file, if one does not fit."""
    if source.resolve() == target.resolve():
        raise DataFileError(f"{target} is the input itself.\nhint: choose another output")
    offending, count = Offending(source), 0
    with atomic_writer(target) as file:
        for number, raw in read_raw_rows(source):
            try:
                row = prompted(parsed(raw), prompt)
            except BadRow as bad:
                offending.add(number, bad)
                continue
            if not offending:
                file.write(dumps_line(row))
                count += 1
        raise_if_any([offending], hint=_HINT)
    return count
