# SPDX-License-Identifier: Apache-2.0
"""Parse and check the rows of a dataset: their create params against the schema of a Responses request.

Bad rows and their reasons are collected over all files and reported at once. Rows can also be given their prompt, from
one file to another.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym._data.create_params import Asked, KnownSettings, read_plain_messages
from nemo_gym._data.lines import DataFileError, read_raw_rows
from nemo_gym._util.atomic_files import atomic_writer
from nemo_gym._util.jsonl_files import dumps_line
from nemo_gym._util.row_keys import RESPONSES_CREATE_PARAMS_KEY_NAME as CREATE_PARAMS
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.errors import GymError

Row = dict[str, Any]

# Parts of an error's location that name a union branch rather than a field.
_BRANCHES = frozenset({"list", "refused"})
_BRANCH_PREFIX = "NeMoGym"
_ROW_HINT = "a row needs `responses_create_params`, a valid Responses request; other fields are free"
# Far more than anyone reads, and little memory.
_MOST_REASONS = 2_000
_MOST_RANGES = 20_000
_PROMPT_HINT = "a prompt fills `responses_create_params.input`: rows must have its fields, and no input yet"


class BadRow(Exception):
    """A bad row: reasons that others may share, and a detail of its own. Caught by whoever reads rows."""

    def __init__(self, reasons: tuple[str, ...], detail: str = "") -> None:
        super().__init__(reasons, detail)
        self.reasons = reasons
        self.detail = detail


def parse_row(raw: bytes) -> Row:
    """Return the row on a line; raise BadRow if it is not one."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRow(("not JSON",), f"{error.msg}, column {error.colno}") from None
    if not isinstance(row, dict):
        kind = {bool: "boolean", str: "string", list: "list", type(None): "null"}.get(type(row), "number")
        raise BadRow((f"a JSON object is expected, this is a {kind}",))
    return row


def fill_prompt(row: Row, prompt: Callable[[Row], Row]) -> Row:
    """Return `row` with its prompt filled in; raise BadRow if `prompt` rejects it."""
    try:
        return prompt(row)
    except GymError as error:
        reason, *rest = [line for line in str(error).splitlines() if not line.startswith("hint: ")]
        raise BadRow((reason.rstrip("."),), "; ".join(rest)) from error


class RowChecker:
    """Checks the create params of rows; settings that were valid once are not checked again."""

    def __init__(self, known: KnownSettings) -> None:
        self._known = known

    def check(self, row: Mapping[str, Any]) -> Asked:
        """Return the row's parsed create params; raise BadRow if they are not a valid request."""
        params = row.get(CREATE_PARAMS)
        if not isinstance(params, dict):
            problem = "not an object" if CREATE_PARAMS in row else "missing"
            raise BadRow((f"{problem} ({CREATE_PARAMS})",))
        settings = self._known.of(params)
        given = params.get("input")
        messages = read_plain_messages(given)
        if not settings.is_valid:
            _validate(params)
            settings.is_valid = True
        # Fields are validated independently: these settings were valid before, and plain messages always are.
        elif messages is None and not isinstance(given, str):
            _validate({"input": given} if "input" in params else {})
        return settings, messages


def _validate(params: Row) -> None:
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        reasons = dict.fromkeys(f"{problem['msg']} ({_name_place(problem['loc'])})" for problem in problems)
        raise BadRow(tuple(reasons)) from None


def _name_place(place: tuple[int | str, ...]) -> str:
    """Return where a value is, without positions: item 7 of one row and item 9 of the next are the same place."""
    parts = ("*" if isinstance(part, int) else part for part in place)
    fields = (part for part in parts if part not in _BRANCHES and not part.startswith(_BRANCH_PREFIX))
    return ".".join([CREATE_PARAMS, *fields])


class OffendingRows(GymError, ValueError):
    """Some dataset rows are not valid."""


@dataclass
class _LineRanges:
    """The line numbers that share a reason, as ranges."""

    detail: str
    most_ranges: int
    ranges: list[list[int]] = field(default_factory=list)
    count: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        if self.ranges and self.ranges[-1][1] == number - 1:
            self.ranges[-1][1] = number
        elif len(self.ranges) < self.most_ranges:
            self.ranges.append([number, number])

    def __str__(self) -> str:
        text = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in self.ranges)
        if unseen := self.count - sum(last - first + 1 for first, last in self.ranges):
            text += f" and {unseen} more"
        return f"row {text}" if self.count == 1 else f"rows {text}"


class Offending:
    """The bad rows of one file; rows are counted as an editor counts lines."""

    def __init__(self, path: Path | str, most_reasons: int = _MOST_REASONS, most_ranges: int = _MOST_RANGES) -> None:
        self.path = path
        self._most_reasons = most_reasons
        self._most_ranges = most_ranges
        self.count = 0
        self._by_reason: dict[str, _LineRanges] = {}
        self._other_reasons = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, number: int, bad: BadRow) -> None:
        self.count += 1
        for reason in bad.reasons:
            lines = self._by_reason.get(reason)
            if lines is None and len(self._by_reason) == self._most_reasons:
                self._other_reasons += 1
                continue
            if lines is None:
                detail = f" (row {number}: {bad.detail})" if bad.detail else ""
                lines = self._by_reason[reason] = _LineRanges(detail, self._most_ranges)
            lines.add(number)

    def describe(self) -> list[str]:
        """Return `file: rows a–b: reason (field)`, one line per reason."""
        told = [f"{self.path}: {lines}: {reason}{lines.detail}" for reason, lines in self._by_reason.items()]
        if self._other_reasons:
            told.append(f"{self.path}: {self._other_reasons} more rows for other reasons")
        return told


def raise_if_offending(found: Iterable[Offending], hint: str = _ROW_HINT) -> None:
    """Raise OffendingRows listing all bad rows of all files, if there are any."""
    bad = [one for one in found if one]
    if not bad:
        return
    total = sum(one.count for one in bad)
    what = f"{total} {'row is' if total == 1 else 'rows are'} not valid; nothing was written."
    raise OffendingRows("\n".join([what, *(line for one in bad for line in one.describe()), f"hint: {hint}"]))


def render_rows(source: Path, target: Path, prompt: Callable[[Row], Row]) -> int:
    """Write every row of `source` with its prompt to `target`; if one does not fit, raise OffendingRows."""
    if source.resolve() == target.resolve():
        raise DataFileError(f"{target} is the input itself.\nhint: choose another output")
    offending = Offending(source)
    count = 0
    with atomic_writer(target) as file:
        for number, raw in read_raw_rows(source):
            try:
                row = fill_prompt(parse_row(raw), prompt)
            except BadRow as bad:
                offending.add(number, bad)
                continue
            if not offending:
                file.write(dumps_line(row))
                count += 1
        raise_if_offending([offending], hint=_PROMPT_HINT)
    return count
