# SPDX-License-Identifier: Apache-2.0
"""Explain the reward of a rollout by its task's target, the answer, the calls, and the verifier's fields.

If the planned row is available, it shows which fields belong to the task; otherwise their names decide.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    BOOKKEEPING_PREFIX,
    BULKY_KEYS,
    FAILURE_KIND_KEY,
    FAILURE_REASON_KEY,
    MASK_SAMPLE_KEY,
    REWARD_KEY_NAME,
)
from nemo_gym._viewer.files.conversation_blocks import ANSWER_TITLE, Block
from nemo_gym._viewer.files.row_facts import MEAN_REWARD_KEYS, NUMBER_TYPES

METADATA_KEY = "verifier_metadata"
_NOT_SCORING = BULKY_KEYS | {
    REWARD_KEY_NAME,
    AGENT_REF_KEY_NAME,
    MASK_SAMPLE_KEY,
    FAILURE_KIND_KEY,
    FAILURE_REASON_KEY,
    *MEAN_REWARD_KEYS,
    "rollout_infos",
    "sample",
}
_TARGET = re.compile(r"^(expected|correct|gold|golden|reference|target|ground_truth)(_|$)")
_LIKELY_TARGET = ("answer", "answers", "label", "solution")
"""A target in a task; in a rollout's row it may be what the verifier extracted."""

Field = tuple[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A tool call; `matched` means that it was both expected and made."""

    name: str
    arguments: Any
    matched: bool = False


@dataclass(frozen=True)
class Scoring:
    """What a reader compares to understand a reward."""

    answer: str | None
    """The last thing the model said; None if it said nothing at the end."""
    targets: list[Field]
    expected_calls: list[ToolCall]
    made_calls: list[ToolCall]
    components: list[tuple[str, float]]
    """Numbers that the verifier added: parts of the reward, and others."""
    verdict: list[Field]
    """Everything else that the verifier added."""
    task_fields: list[Field]
    """The other fields of the task."""
    is_task_known: bool
    """Whether the planned row was available, so that the verifier's fields are separated from the task's."""


def read_scoring(row: Mapping[str, Any], task: Mapping[str, Any] | None, blocks: Sequence[Block]) -> Scoring:
    """Sort the fields of a row, and of its planned row, by their purpose."""
    given = dict(iter_own_fields(task or {}))
    row_fields = dict(iter_own_fields(row))
    targets = read_targets(row, task)
    shown = {name for name, _ in targets}
    added = [(name, value) for name, value in row_fields.items() if name not in given and name not in shown]
    components = [field for name, value in added for field in _list_numbers(name, value)]
    verdict = [(name, value) for name, value in added if not _list_numbers(name, value)]
    expected = next((calls for _, value in targets if (calls := _list_calls(value))), [])
    called = [block for block in blocks if block.kind == "tool_call" and block.generated]
    made = [ToolCall(block.name or "", _parse_arguments(block.text)) for block in called]
    return Scoring(
        answer=next((block.text for block in reversed(blocks) if block.title == ANSWER_TITLE), None),
        targets=[(name, value) for name, value in targets if not expected or not _list_calls(value)],
        expected_calls=_mark_matches(expected, made),
        made_calls=_mark_matches(made, expected),
        components=components,
        verdict=verdict,
        task_fields=[(name, value) for name, value in given.items() if name not in shown],
        is_task_known=task is not None,
    )


def read_targets(row: Mapping[str, Any], task: Mapping[str, Any] | None) -> list[Field]:
    """Return what a row says is right: fields of the task, of its metadata, or of the row, by name."""
    source = task if task is not None else row
    found = {name: value for name, value in iter_own_fields(row) if _TARGET.match(name)}
    found |= {name: value for name, value in iter_own_fields(source) if _TARGET.match(name)}
    nested = as_mapping(source.get(METADATA_KEY) or row.get(METADATA_KEY))
    found |= {f"{METADATA_KEY}.{name}": value for name, value in nested.items() if _TARGET.match(name)}
    for name in _LIKELY_TARGET:
        # Beside another target, a row's own `answer` is more likely what the verifier extracted from the model's.
        if source.get(name) is not None and (task is not None or not found):
            found[name] = source[name]
        elif nested.get(name) is not None:
            found[f"{METADATA_KEY}.{name}"] = nested[name]
    if not found and nested:
        found[METADATA_KEY] = nested
    return [(name, value) for name, value in found.items() if value is not None]


def iter_own_fields(row: Mapping[str, Any]) -> Iterator[Field]:
    """Yield the fields of a row that belong to its environment, not to us."""
    for name, value in row.items():
        if name not in _NOT_SCORING and not name.startswith(BOOKKEEPING_PREFIX):
            yield name, value


def shorten(value: Any, length: int) -> str:
    """Return a value on one line, cut off if it is long."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if calls := _list_calls(value):
        value = ", ".join(call.name for call in calls)
    if not isinstance(value, str):
        value = _format_compact(value)
    # Only look at the beginning of a text: it may be megabytes long.
    line = " ".join(value[: 4 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _list_numbers(name: str, value: Any) -> list[tuple[str, float]]:
    """Return a number, or the numbers of an object that holds nothing else, by name."""
    if type(value) in NUMBER_TYPES:
        return [(name, value)]
    if isinstance(value, dict) and value and all(type(one) in NUMBER_TYPES for one in value.values()):
        return [(f"{name}.{part}", one) for part, one in value.items()]
    return []


def _list_calls(value: Any) -> list[ToolCall]:
    """Return the tool calls that a target lists; none if it is something else."""
    if not isinstance(value, list) or not value:
        return []
    calls = [
        ToolCall(one["name"], _parse_arguments(one.get("arguments")))
        for one in value
        if isinstance(one, dict) and isinstance(one.get("name"), str) and "arguments" in one
    ]
    return calls if len(calls) == len(value) else []


def _mark_matches(calls: Sequence[ToolCall], others: Sequence[ToolCall]) -> list[ToolCall]:
    """Mark the calls that are also among the others, each of which matches once."""
    left = Counter((other.name, _format_compact(other.arguments)) for other in others)
    marked = []
    for call in calls:
        key = (call.name, _format_compact(call.arguments))
        marked.append(ToolCall(call.name, call.arguments, matched=left[key] > 0))
        left[key] -= 1
    return marked


def _parse_arguments(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            return orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return arguments
    return arguments


def _format_compact(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str).decode()
