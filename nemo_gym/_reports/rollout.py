# SPDX-License-Identifier: Apache-2.0
"""One row as a reader wants it: the conversation in titled blocks, how it was scored, and with what settings.

Any row of any file will do: what it lacks is absent, or taken from the planned row of its task. Turning it into a page
is left to others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from nemo_gym._reports.conversation import (
    Block,
    ModelCall,
    input_items,
    mark_errors,
    model_calls,
    output_items,
    pretty,
    read_blocks,
    said_in_calls,
)
from nemo_gym._reports.row_facts import (
    Kind,
    agent_name,
    cut_off_of,
    facts_of,
    failure_kind_of,
    index_of,
    message_of,
    texts_of,
)
from nemo_gym._reports.scoring import METADATA_KEY, Scoring, own_fields, read_scoring, read_targets, short_text
from nemo_gym._reports.tokens import TokenView, token_view
from nemo_gym._util.keys import (
    FAILURE_KEY,
    NG_TERMINAL_KEY,
    NG_TOOL_ERRORS_KEY,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)


@dataclass(frozen=True)
class FailureInfo:
    """Why a row has no reward that counts."""

    kind: str
    message: str
    boundary: str | None = None
    retryable: bool | None = None
    attempts: int | None = None
    elapsed_s: float | None = None
    terminal: bool = False


@dataclass(frozen=True)
class ToolError:
    """A tool that crashed in a rollout."""

    tool: str
    status: str
    message: str


@dataclass(frozen=True)
class Rollout:
    """One row."""

    title: str
    kind: Kind
    """Of which kind of file it is."""
    outcome: Literal["scored", "failed", "unscored"]
    response_id: str | None
    model: str | None
    task: int | None
    rollout: int | None
    agent: str | None
    reward: float | None
    finish_reason: str
    """How the response ended; empty if the row does not say."""
    cut_off: str
    """What ended the rollout before it was done; empty if it ended by itself."""
    tool_errors: list[ToolError]
    scoring: Scoring
    settings: dict[str, Any]
    """How the model was asked: the create params without input and tools; what is null is left out."""
    tools: list[dict[str, Any]]
    blocks: list[Block]
    calls: list[ModelCall]
    usage: dict[str, Any]
    failure: FailureInfo | None
    tokens: TokenView | None
    row: dict[str, Any] = field(repr=False)

    def raw_json(self) -> str:
        """The whole row, indented."""
        return pretty(self.row)

    def compact_json(self) -> str:
        """The whole row on one line."""
        return orjson.dumps(self.row, option=orjson.OPT_NON_STR_KEYS, default=str).decode()


def read_rollout(row: dict[str, Any], planned: Mapping[str, Any] | None = None) -> Rollout:
    """What there is to show of a row; `planned` is the row that was played, where a run has kept it."""
    facts = facts_of(row)
    holder = _mapping(row.get("sample")) if facts.kind == "profile" and "sample" in row else row
    asked = holder.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or (planned or {}).get(RESPONSES_CREATE_PARAMS_KEY_NAME)
    params, response = _mapping(asked), _mapping(row.get(RESPONSE_KEY_NAME))
    task, rollout = index_of(row, TASK_INDEX_KEY_NAME), index_of(row, ROLLOUT_INDEX_KEY_NAME)
    # A rollout that failed has no response: what its captured calls hold is what was said until then.
    generated = output_items(response) or said_in_calls(row)
    errors = [error for error in _list(row.get(NG_TOOL_ERRORS_KEY)) if isinstance(error, dict)]
    blocks = mark_errors(read_blocks(input_items(params), generated), errors)
    failure = _failure(row)
    has_reward = facts.reward == facts.reward
    return Rollout(
        title=_title(task, rollout, facts.kind),
        kind=facts.kind,
        outcome="failed" if failure else "scored" if has_reward else "unscored",
        response_id=_text(response.get("id")),
        model=_text(response.get("model")) or _text(params.get("model")),
        task=task,
        rollout=rollout,
        agent=agent_name(row),
        reward=facts.reward if has_reward else None,
        finish_reason=facts.finish,
        cut_off=cut_off_of(row),
        tool_errors=[
            ToolError(*(str(error.get(name, "")) for name in ("tool", "status", "message"))) for error in errors
        ],
        scoring=read_scoring(row if holder is row else {**holder, **row}, planned, blocks),
        settings={name: v for name, v in params.items() if name not in ("input", "tools") and v is not None},
        tools=[tool for tool in _list(params.get("tools")) if isinstance(tool, dict)],
        blocks=blocks,
        calls=model_calls(row),
        usage=dict(_mapping(response.get("usage"))),
        failure=failure,
        tokens=token_view(_list(response.get("output"))),
        row=row,
    )


def _title(task: int | None, rollout: int | None, kind: Kind) -> str:
    if task is None:
        return {"rollouts": "Rollout", "failures": "Failure"}.get(kind, "Row")
    return f"Task {task}" if rollout is None else f"Task {task} · Rollout {rollout}"


def _failure(row: Mapping[str, Any]) -> FailureInfo | None:
    kind = failure_kind_of(row)
    if not kind:
        return None
    said = _mapping(row.get(FAILURE_KEY))
    attempts, elapsed_s = said.get("attempts"), said.get("elapsed_s")
    return FailureInfo(
        kind=kind,
        message=message_of(row),
        boundary=_text(said.get("boundary")),
        retryable=said["retryable"] if isinstance(said.get("retryable"), bool) else None,
        attempts=attempts if type(attempts) is int else None,
        elapsed_s=float(elapsed_s) if isinstance(elapsed_s, (int, float)) else None,
        terminal=bool(row.get(NG_TERMINAL_KEY)),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
