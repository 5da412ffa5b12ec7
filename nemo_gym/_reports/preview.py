# SPDX-License-Identifier: Apache-2.0
"""What a list shows of a row beyond its facts: what was asked last, the answer, the target, and fields of the task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._reports.blocks import input_items, output_items
from nemo_gym._reports.facts import texts_of
from nemo_gym._reports.failures import message_of
from nemo_gym._reports.scoring import METADATA_KEY, own_fields, read_targets, short_text
from nemo_gym._util.keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME

_LENGTH, _FIELD_LENGTH = 160, 60
_QUESTIONS = ("question", "problem", "prompt", "instruction", "task")
_SIMPLE = (str, int, float, bool)


@dataclass(frozen=True)
class Preview:
    """One line for each."""

    asked: str = ""
    """The last thing that a user says in the prompt."""
    answer: str = ""
    """The last thing that the model says."""
    target: str = ""
    failure: str = ""
    """What went wrong, for a rollout that failed."""
    fields: dict[str, str] = field(default_factory=dict)
    """The simple fields of the row and of its task."""


def preview_row(row: Mapping[str, Any], planned: Mapping[str, Any] | None = None) -> Preview:
    """`planned` is the row that was played, where a run has kept it."""
    targets = read_targets(row, planned)
    return Preview(
        asked=_first_line(_asked(row, planned)),
        answer=_first_line(_answers(row)),
        target=short_text(targets[0][1], _LENGTH) if targets else "",
        failure=short_text(message_of(row), _LENGTH),
        fields=_simple_fields(planned or {}) | _simple_fields(row),
    )


def preview_of(row: Mapping[str, Any]) -> str:
    """What was asked last in the row, on one line."""
    return _first_line(_asked(row, None))


def _first_line(texts: Iterator[str]) -> str:
    return next((line for text in texts if (line := short_text(text, _LENGTH))), "")


def _asked(row: Mapping[str, Any], planned: Mapping[str, Any] | None) -> Iterator[str]:
    for holder in (row, row.get("sample"), planned):
        params = holder.get(RESPONSES_CREATE_PARAMS_KEY_NAME) if isinstance(holder, dict) else None
        for item in reversed(input_items(params) if isinstance(params, dict) else []):
            if isinstance(item, dict) and item.get("role") == "user":
                yield from texts_of(item.get("content"))
    yield from (row[name] for name in _QUESTIONS if isinstance(row.get(name), str))


def _answers(row: Mapping[str, Any]) -> Iterator[str]:
    response = row.get(RESPONSE_KEY_NAME)
    items = output_items(response) if isinstance(response, dict) else []
    # What stands before a tool call is no answer yet.
    if items and isinstance(items[-1], dict) and items[-1].get("role") == "assistant":
        yield from texts_of(items[-1].get("content"))


def _simple_fields(row: Mapping[str, Any]) -> dict[str, str]:
    metadata = row.get(METADATA_KEY)
    nested = metadata.items() if isinstance(metadata, dict) else ()
    named = [*own_fields(row), *((f"{METADATA_KEY}.{name}", value) for name, value in nested)]
    return {name: short_text(value, _FIELD_LENGTH) for name, value in named if isinstance(value, _SIMPLE)}
