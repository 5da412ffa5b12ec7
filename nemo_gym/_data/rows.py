# SPDX-License-Identifier: Apache-2.0
"""One row of a dataset: parsed, and its create params checked against the schema of a Responses request.

A row is all that is looked at here; which rows of which files are bad is told by `nemo_gym._data.offending`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym._data.params import Asked, KnownSettings, plain_messages
from nemo_gym._util.row_keys import RESPONSES_CREATE_PARAMS_KEY_NAME as CREATE_PARAMS
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.errors import GymError

Row = dict[str, Any]

# Parts of an error's location that name a branch of a union rather than a field.
_BRANCHES = frozenset({"list", "refused"})
_BRANCH_PREFIX = "NeMoGym"


class BadRow(Exception):
    """What is wrong with one row: reasons that other rows may share, and a detail of this one. Never leaves `_data`."""

    def __init__(self, reasons: tuple[str, ...], detail: str = "") -> None:
        super().__init__(reasons, detail)
        self.reasons, self.detail = reasons, detail


def parsed(raw: bytes) -> Row:
    """The row on a line; BadRow if there is none."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRow(("not JSON",), f"{error.msg}, column {error.colno}") from None
    if not isinstance(row, dict):
        raise BadRow((f"a JSON object is expected, this is a {_json_name(row)}",))
    return row


def prompted(row: Row, prompt: Callable[[Row], Row]) -> Row:
    """`row` with its prompt filled in; BadRow if `prompt` refuses it."""
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
        """The row's create params, taken apart; BadRow if they are no valid request."""
        params = row.get(CREATE_PARAMS)
        if not isinstance(params, dict):
            problem = "not an object" if CREATE_PARAMS in row else "missing"
            raise BadRow((f"{problem} ({CREATE_PARAMS})",))
        settings, given = self._known.of(params), params.get("input")
        messages = plain_messages(given)
        if not settings.is_valid:
            _validate(params)
            settings.is_valid = True
        # Fields are checked apart from each other: the settings were valid before, and plain messages always are.
        elif messages is None and not isinstance(given, str):
            _validate({"input": given} if "input" in params else {})
        return settings, messages


def _validate(params: Row) -> None:
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        reasons = dict.fromkeys(f"{problem['msg']} ({_field(problem['loc'])})" for problem in problems)
        raise BadRow(tuple(reasons)) from None


def _field(place: tuple[int | str, ...]) -> str:
    """Where a value stands; item 7 of one row and item 9 of the next are the same place."""
    parts = [
        "*" if isinstance(part, int) else part
        for part in place
        if isinstance(part, int) or not (part in _BRANCHES or part.startswith(_BRANCH_PREFIX))
    ]
    return ".".join([CREATE_PARAMS, *parts])


def _json_name(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", str: "string", list: "list"}.get(type(value), "number")
