# SPDX-License-Identifier: Apache-2.0
"""One row as a reader wants it: the conversation in titled blocks, how it was scored, and with what settings.

Any row of any file will do: what it lacks is absent, what is of no known shape is shown as the JSON it is. Turning
blocks into pages is left to others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from nemo_gym._reports.calls import ModelCall, model_calls
from nemo_gym._reports.facts import (
    CAPTURE_KEY,
    MEAN_REWARD_KEYS,
    Kind,
    agent_name,
    facts_of,
    failure_kind_of,
    index_of,
    is_tool_call,
    texts_of,
    tool_name,
)
from nemo_gym._reports.failures import message_of
from nemo_gym._reports.images import safe_images
from nemo_gym._reports.tokens import TokenView, token_view
from nemo_gym._util.keys import (
    AGENT_REF_KEY_NAME,
    BOOKKEEPING_PREFIX,
    FAILURE_KEY,
    NG_TERMINAL_KEY,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)

BlockKind = Literal["system", "user", "assistant", "reasoning", "tool_call", "tool_output", "other"]

_BULK = frozenset(
    {
        RESPONSE_KEY_NAME,
        RESPONSES_CREATE_PARAMS_KEY_NAME,
        REWARD_KEY_NAME,
        AGENT_REF_KEY_NAME,
        CAPTURE_KEY,
        "ng_trajectory",
        "ng_agent_observations",
        "rollout_infos",
        "sample",
    }
)
_ROLES: dict[str, tuple[BlockKind, str]] = {
    "user": ("user", "User message"),
    "system": ("system", "System message"),
    "developer": ("system", "System message"),
    "assistant": ("assistant", "Assistant message"),
}
_NUMBERS = frozenset({int, float, bool})


@dataclass(frozen=True)
class Block:
    """One item of the conversation."""

    kind: BlockKind
    title: str
    text: str
    is_json: bool = False
    """The text is JSON, indented."""
    status: str | None = None
    turn: int = 0
    step: int = 0
    name: str | None = None
    """The tool that is called."""
    call_id: str | None = None
    generated: bool = False
    """It is part of the response, not of the input."""
    images: tuple[str, ...] = ()
    """Pictures inside the row, as data URLs that are safe to show."""
    n_tokens: int | None = None
    """How many tokens the model generated for it, where the row holds them."""


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
    components: list[tuple[str, float]]
    """The verifier's numbers."""
    extras: list[tuple[str, Any]]
    """All other fields of the row, but for its bulk."""
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


def read_rollout(row: dict[str, Any]) -> Rollout:
    """What there is to show of a row."""
    facts = facts_of(row)
    holder = _mapping(row.get("sample")) if facts.kind == "profile" and "sample" in row else row
    params, response = _mapping(holder.get(RESPONSES_CREATE_PARAMS_KEY_NAME)), _mapping(row.get(RESPONSE_KEY_NAME))
    task, rollout = index_of(row, TASK_INDEX_KEY_NAME), index_of(row, ROLLOUT_INDEX_KEY_NAME)
    components, extras = _fields(row if holder is row else {**holder, **row})
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
        components=components,
        extras=extras,
        settings={name: v for name, v in params.items() if name not in ("input", "tools") and v is not None},
        tools=[tool for tool in _list(params.get("tools")) if isinstance(tool, dict)],
        blocks=list(_blocks(params, response)),
        calls=model_calls(row.get(CAPTURE_KEY)),
        usage=dict(_mapping(response.get("usage"))),
        failure=failure,
        tokens=token_view(_list(response.get("output"))),
        row=row,
    )


def pretty(value: Any) -> str:
    """JSON, indented."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()


def _title(task: int | None, rollout: int | None, kind: Kind) -> str:
    if task is None:
        return {"rollouts": "Rollout", "failures": "Failure"}.get(kind, "Row")
    return f"Task {task}" if rollout is None else f"Task {task} · Rollout {rollout}"


def _fields(row: Mapping[str, Any]) -> tuple[list[tuple[str, float]], list[tuple[str, Any]]]:
    numbers: list[tuple[str, float]] = []
    others: list[tuple[str, Any]] = []
    for name, value in row.items():
        if name in _BULK or name.startswith(BOOKKEEPING_PREFIX) or name in MEAN_REWARD_KEYS:
            continue
        if type(value) in _NUMBERS:
            numbers.append((name, value))
        else:
            others.append((name, value))
    return numbers, others


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


def _blocks(params: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[Block]:
    """The input, then what the model and its tools made of it; turns and steps are counted through both."""
    turn = step = 0
    for item, generated in _items(params, response):
        turn, step = _counted(item, turn, step)
        prefix = f"Turn {turn} Step {step} - "
        if item.get("type") == "reasoning":
            yield from _reasoning(item, prefix, turn, step, generated)
        else:
            yield _block(item, prefix, turn, step, generated)


def _items(params: Mapping[str, Any], response: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    given = params.get("input")
    if instructions := _text(params.get("instructions")):
        yield {"role": "system", "content": instructions}, False
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else _list(given):
        yield item if isinstance(item, dict) else {"type": "unknown", "value": item}, False
    output = response.get("output")
    for item in [{"role": "assistant", "content": output}] if isinstance(output, str) else _list(output):
        yield item if isinstance(item, dict) else {"type": "unknown", "value": item}, True


def _counted(item: Mapping[str, Any], turn: int, step: int) -> tuple[int, int]:
    if item.get("role") == "user":
        return turn + 1, 0
    return (turn, step + 1) if is_tool_call(item) else (turn, step)


def _reasoning(item: Mapping[str, Any], prefix: str, turn: int, step: int, generated: bool) -> Iterator[Block]:
    """A block for every summary; the thoughts themselves where there is no summary."""
    texts = list(texts_of(item.get("summary"))) or list(texts_of(item.get("content")))
    if not texts and item.get("encrypted_content"):
        texts = ["(encrypted by the model's provider)"]
    for number, text in enumerate(texts):
        n_tokens = _n_tokens(item) if number == 0 else None
        yield Block(
            "reasoning", f"{prefix}Reasoning", text, turn=turn, step=step, generated=generated, n_tokens=n_tokens
        )


def _block(item: Mapping[str, Any], prefix: str, turn: int, step: int, generated: bool) -> Block:
    kind, title = _kind_and_title(item)
    text, is_json, images = _content(item, kind)
    return Block(
        kind=kind,
        title=prefix + title,
        text=text,
        is_json=is_json,
        status=_text(item.get("status")),
        turn=turn,
        step=step,
        name=tool_name(item) if kind == "tool_call" else None,
        call_id=_call_id(item) if kind in ("tool_call", "tool_output") else None,
        generated=generated,
        images=images,
        n_tokens=_n_tokens(item),
    )


def _kind_and_title(item: Mapping[str, Any]) -> tuple[BlockKind, str]:
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    if is_tool_call(item):
        return "tool_call", f"Function call - `{tool_name(item)}` (tool call ID `{_call_id(item)}`)"
    if isinstance(kind, str) and kind.endswith("_call_output"):
        return "tool_output", f"Function call output (tool call ID `{_call_id(item)}`)"
    return "other", str(kind or role or "Item")


def _content(item: Mapping[str, Any], kind: BlockKind) -> tuple[str, bool, tuple[str, ...]]:
    """Text, whether it is JSON, pictures."""
    if kind == "tool_call" and "arguments" in item:
        return *_indented(item["arguments"]), ()
    if kind == "tool_output" and "output" in item:
        output = item["output"]
        if isinstance(output, list) and (texts := list(texts_of(output))):
            return "\n".join(texts), False, safe_images(output)
        return *_indented(output), safe_images(output)
    if kind in ("tool_call", "tool_output", "other"):
        return pretty(item), True, ()
    content = item.get("content")
    texts = list(texts_of(content))
    unread = [part for part in _list(content) if not list(texts_of([part])) and not safe_images([part])]
    # A part that is neither text nor a picture that can be shown is still there for the reader.
    return "\n\n".join([*texts, *map(pretty, unread)]), False, safe_images(content)


def _indented(value: Any) -> tuple[str, bool]:
    """A value, or the JSON in a text, indented; a text that is no JSON object or list stays as it is."""
    if isinstance(value, str):
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:
            return value, False
        return (pretty(parsed), True) if isinstance(parsed, (dict, list)) else (value, False)
    return pretty(value), True


def _call_id(item: Mapping[str, Any]) -> str:
    return _text(item.get("call_id")) or _text(item.get("id")) or "none"


def _n_tokens(item: Mapping[str, Any]) -> int | None:
    ids = item.get("generation_token_ids")
    return len(ids) if isinstance(ids, list) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
