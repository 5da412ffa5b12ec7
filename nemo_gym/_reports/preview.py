# SPDX-License-Identifier: Apache-2.0
"""One line that tells a row from the others: what the user asked, or else what went wrong."""

from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym._reports.facts import texts_of
from nemo_gym._util.keys import FAILURE_KEY, RESPONSES_CREATE_PARAMS_KEY_NAME

_LENGTH = 160
_QUESTIONS = ("question", "problem", "prompt", "instruction", "task")


def preview_of(row: Mapping[str, Any]) -> str:
    """The beginning of the first thing that a user says in the row, on one line."""
    for text in _candidates(row):
        # Only the beginning of a text is looked at: a prompt may be megabytes long.
        shown = " ".join(text[: 4 * _LENGTH].split())
        if shown:
            return shown if len(shown) <= _LENGTH else f"{shown[: _LENGTH - 1]}…"
    return ""


def _candidates(row: Mapping[str, Any]) -> Iterator[str]:
    for holder in (row, row.get("sample")):
        params = holder.get(RESPONSES_CREATE_PARAMS_KEY_NAME) if isinstance(holder, dict) else None
        given = params.get("input") if isinstance(params, dict) else None
        if isinstance(given, str):
            yield given
        elif isinstance(given, list):
            for item in given:
                if isinstance(item, dict) and item.get("role") == "user":
                    yield from texts_of(item.get("content"))
    failure = row.get(FAILURE_KEY)
    if isinstance(failure, dict) and isinstance(failure.get("message"), str):
        yield failure["message"]
    for name in _QUESTIONS:
        if isinstance(row.get(name), str):
            yield row[name]
