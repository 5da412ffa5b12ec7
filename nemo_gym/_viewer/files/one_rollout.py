# SPDX-License-Identifier: Apache-2.0
"""One row for a reader: in full, with its conversation, score and settings, or as a preview in a list.

Any row of any file will do: what it lacks is absent, or taken from the planned row of its task. Rendering is done
elsewhere.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._results.result_rows import read_agent_name
from nemo_gym._util.json_shapes import as_int, as_list, as_mapping, as_number, as_text
from nemo_gym._util.row_keys import (
    FAILURE_KEY,
    NG_TERMINAL_KEY,
    NG_TOOL_ERRORS_KEY,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym._viewer.files.conversation_blocks import (
    Block,
    ModelCall,
    list_input_items,
    list_output_items,
    mark_step_rewards,
    mark_tool_errors,
    read_blocks,
    read_captured_items,
    read_model_calls,
)
from nemo_gym._viewer.files.program_work import ProgramWork, read_program_work
from nemo_gym._viewer.files.reward_explanation import (
    METADATA_KEY,
    Scoring,
    iter_own_fields,
    read_scoring,
    read_targets,
    shorten,
)
from nemo_gym._viewer.files.rollout_tokens import TokenSequence, read_tokens
from nemo_gym._viewer.files.row_facts import (
    Kind,
    RowOutcome,
    iter_texts,
    read_cut_off,
    read_facts,
    read_failure_kind,
    read_failure_message,
    read_index,
    read_outcome,
)

_PREVIEW_LENGTH = 160
_FIELD_LENGTH = 60
_QUESTION_KEYS = ("question", "problem", "prompt", "instruction", "task")


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
    """The kind of file it is from."""
    outcome: RowOutcome
    response_id: str | None
    model: str | None
    task: int | None
    rollout: int | None
    agent: str | None
    reward: float | None
    finish_reason: str
    """How the response ended; empty if the row does not say."""
    cut_off: str
    """What cut the rollout off; empty if it ended normally."""
    tool_errors: list[ToolError]
    scoring: Scoring
    settings: dict[str, Any]
    """How the model was asked: the create params without input, tools and null values."""
    tools: list[dict[str, Any]]
    blocks: list[Block]
    calls: list[ModelCall]
    usage: dict[str, Any]
    failure: FailureInfo | None
    tokens: TokenSequence | None
    work: ProgramWork | None
    """What the program that ran it left behind."""
    row: dict[str, Any] = field(repr=False)

    @property
    def is_played(self) -> bool:
        """Whether the row is the result of a rollout, scored or failed."""
        return self.kind in ("rollouts", "failures")


def read_rollout(row: dict[str, Any], planned: Mapping[str, Any] | None = None) -> Rollout:
    """Return what there is to show of a row; `planned` is the planned row, if the run kept it."""
    facts = read_facts(row)
    holder: Mapping[str, Any] = row
    if facts.kind == "profile" and "sample" in row:
        holder = as_mapping(row["sample"])
    asked = holder.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or (planned or {}).get(RESPONSES_CREATE_PARAMS_KEY_NAME)
    params = as_mapping(asked)
    response = as_mapping(row.get(RESPONSE_KEY_NAME))
    task = read_index(row, TASK_INDEX_KEY_NAME)
    rollout = read_index(row, ROLLOUT_INDEX_KEY_NAME)
    # A failed rollout has no response: its captured calls hold what was said until then.
    generated = list_output_items(response) or read_captured_items(row)
    errors = [error for error in as_list(row.get(NG_TOOL_ERRORS_KEY)) if isinstance(error, dict)]
    blocks = mark_tool_errors(read_blocks(list_input_items(params), generated), errors)
    blocks = mark_step_rewards(blocks, as_list(row.get("step_rewards")))
    work = read_program_work(row, blocks)
    fields = {name: value for name, value in row.items() if work is None or name not in work.fields}
    failure = _read_failure(row)
    reward = None
    if not math.isnan(facts.reward):
        reward = facts.reward
    title = {"rollouts": "Rollout", "failures": "Failure"}.get(facts.kind, "Row")
    if task is not None:
        title = f"Task {task}"
        if rollout is not None:
            title = f"{title} · Rollout {rollout}"
    return Rollout(
        title=title,
        kind=facts.kind,
        outcome=read_outcome(facts.flags),
        response_id=as_text(response.get("id")),
        model=as_text(response.get("model")) or as_text(params.get("model")),
        task=task,
        rollout=rollout,
        agent=read_agent_name(row),
        reward=reward,
        finish_reason=facts.finish,
        cut_off=read_cut_off(row),
        tool_errors=[
            ToolError(*(str(error.get(name, "")) for name in ("tool", "status", "message"))) for error in errors
        ],
        scoring=read_scoring(fields if holder is row else {**holder, **fields}, planned, blocks),
        settings={name: v for name, v in params.items() if name not in ("input", "tools") and v is not None},
        tools=[tool for tool in as_list(params.get("tools")) if isinstance(tool, dict)],
        blocks=blocks,
        calls=read_model_calls(row),
        usage=dict(as_mapping(response.get("usage"))),
        failure=failure,
        tokens=read_tokens(as_list(response.get("output"))),
        work=work,
        row=row,
    )


def _read_failure(row: Mapping[str, Any]) -> FailureInfo | None:
    kind = read_failure_kind(row)
    if not kind:
        return None
    said = as_mapping(row.get(FAILURE_KEY))
    retryable = said.get("retryable")
    if not isinstance(retryable, bool):
        retryable = None
    return FailureInfo(
        kind=kind,
        message=read_failure_message(row),
        boundary=as_text(said.get("boundary")),
        retryable=retryable,
        attempts=as_int(said.get("attempts")),
        elapsed_s=as_number(said.get("elapsed_s")),
        terminal=bool(row.get(NG_TERMINAL_KEY)),
    )


@dataclass(frozen=True)
class Preview:
    """What a list shows of a row beyond its facts, each on one line."""

    asked: str = ""
    """The last user message in the prompt."""
    answer: str = ""
    """The last thing the model says."""
    target: str = ""
    failure: str = ""
    """What went wrong, for a failed rollout."""
    fields: dict[str, str] = field(default_factory=dict)
    """The simple fields of the row and of its task."""


def preview_row(row: Mapping[str, Any], planned: Mapping[str, Any] | None = None) -> Preview:
    """Return the preview of a row; `planned` is the planned row, if the run kept it."""
    target = ""
    if targets := read_targets(row, planned):
        target = shorten(targets[0][1], _PREVIEW_LENGTH)
    answer = ""
    items = list_output_items(as_mapping(row.get(RESPONSE_KEY_NAME)))
    # Text before a tool call is not an answer yet.
    if items and isinstance(items[-1], dict) and items[-1].get("role") == "assistant":
        answer = _shorten_first(iter_texts(items[-1].get("content")))
    return Preview(
        asked=preview_question(row, planned),
        answer=answer,
        target=target,
        failure=shorten(read_failure_message(row), _PREVIEW_LENGTH),
        fields=_preview_fields(planned or {}) | _preview_fields(row),
    )


def preview_question(row: Mapping[str, Any], planned: Mapping[str, Any] | None = None) -> str:
    """Return the last question in the row, on one line."""

    def iter_questions() -> Iterator[str]:
        for holder in (row, row.get("sample"), planned):
            params = as_mapping(as_mapping(holder).get(RESPONSES_CREATE_PARAMS_KEY_NAME))
            for item in reversed(list_input_items(params)):
                if isinstance(item, dict) and item.get("role") == "user":
                    yield from iter_texts(item.get("content"))
        yield from (row[name] for name in _QUESTION_KEYS if isinstance(row.get(name), str))

    return _shorten_first(iter_questions())


def _shorten_first(texts: Iterator[str]) -> str:
    """Return the first non-empty text, on one line."""
    return next((line for text in texts if (line := shorten(text, _PREVIEW_LENGTH))), "")


def _preview_fields(row: Mapping[str, Any]) -> dict[str, str]:
    nested = as_mapping(row.get(METADATA_KEY)).items()
    named = [*iter_own_fields(row), *((f"{METADATA_KEY}.{name}", value) for name, value in nested)]
    return {name: shorten(value, _FIELD_LENGTH) for name, value in named if isinstance(value, (str, int, float))}
