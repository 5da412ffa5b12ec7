# SPDX-License-Identifier: Apache-2.0
"""The items of a conversation as titled blocks: who says what, whether it was given or generated, as text or as JSON.

An item of no known shape is shown as the JSON it is. Turning blocks into pages is left to others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from nemo_gym._capture.payloads import answer_items
from nemo_gym._reports.row_facts import is_tool_call, texts_of, tool_name
from nemo_gym._util.json_shapes import as_list, as_mapping
from nemo_gym._util.keys import MODEL_CALL_CAPTURE_KEY, TRAJECTORY_KEY

BlockKind = Literal["system", "user", "assistant", "reasoning", "tool_call", "tool_output", "other"]
Item = Mapping[str, Any]

_ROLES: dict[str, BlockKind] = {"user": "user", "system": "system", "developer": "system", "assistant": "assistant"}
_TITLES: dict[BlockKind, tuple[str, str]] = {
    "system": ("System prompt", "System message"),
    "user": ("User", "User"),
    "assistant": ("Assistant", "Model said"),
    "reasoning": ("Reasoning", "Model thought"),
    "tool_call": ("Assistant asked for {name}", "Model asked for {name}"),
    "tool_output": ("Tool answered", "Tool answered"),
}
"""What a block of each kind is called where it was given to the model, and where the model or a tool made it."""
ANSWER_TITLE = "Answer"


@dataclass(frozen=True)
class Block:
    """One item of the conversation."""

    kind: BlockKind
    title: str
    text: str
    is_json: bool = False
    """The text is JSON, indented."""
    status: str | None = None
    name: str | None = None
    """The tool that is called, or that answers."""
    call_id: str | None = None
    generated: bool = False
    """It is part of the response, not of the input."""
    images: tuple[str, ...] = ()
    """Pictures inside the row, as data URLs that are safe to show."""
    n_tokens: int | None = None
    """How many tokens the model generated for it, where the row holds them."""
    error: str | None = None
    """How the tool crashed that should have answered."""


def read_blocks(given: Sequence[Any], generated: Sequence[Any]) -> list[Block]:
    """The blocks of what the model was given, then of what it and its tools made of that."""
    blocks = [block for item in given for block in _blocks_of(item, generated=False)]
    made = [block for item in generated for block in _blocks_of(item, generated=True)]
    if made and made[-1].kind == "assistant":
        made[-1] = replace(made[-1], title=ANSWER_TITLE)
    return _name_answers([*blocks, *made])


def input_items(params: Item) -> list[Any]:
    """What a model is asked, as items: instructions first."""
    given, instructions = params.get("input"), params.get("instructions")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _list(given)
    named = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    return [*named, *items]


def output_items(response: Item) -> list[Any]:
    """What a response holds, as items."""
    output = response.get("output")
    return [{"role": "assistant", "content": output}] if isinstance(output, str) else _list(output)


def mark_errors(blocks: Sequence[Block], errors: Sequence[Item]) -> list[Block]:
    """Say at the answers of tools that crashed how they did; an error that fits no answer is left out."""
    marked = list(blocks)
    for error in errors:
        tool, message = error.get("tool"), str(error.get("message") or "")
        calls = [at for at, one in enumerate(marked) if one.kind == "tool_output" and one.name == tool]
        fitting = [at for at in calls if not marked[at].error and message and message in marked[at].text]
        alike = sum(other.get("tool") == tool for other in errors)
        # Where every call of a tool crashed, it need not be told by its message which of them did.
        place = next(
            iter(fitting or ([at for at in calls if not marked[at].error] if alike >= len(calls) else [])), None
        )
        if place is not None:
            marked[place] = replace(marked[place], error=f"crashed with status {error.get('status')}")
    return marked


def pretty(value: Any) -> str:
    """JSON, indented."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()


def _blocks_of(item: Any, *, generated: bool) -> Iterator[Block]:
    if not isinstance(item, dict):
        item = {"type": "unknown", "value": item}
    if item.get("type") == "reasoning":
        yield from _reasoning(item, generated)
        return
    kind = _kind(item)
    name = tool_name(item) if kind == "tool_call" else None
    text, is_json, images = _content(item, kind)
    yield Block(
        kind=kind,
        title=_title(kind, generated, name) or str(item.get("type") or item.get("role") or "Item"),
        text=text,
        is_json=is_json,
        status=_text(item.get("status")),
        name=name,
        call_id=_text(item.get("call_id")) or _text(item.get("id")) if kind in ("tool_call", "tool_output") else None,
        generated=generated,
        images=images,
        n_tokens=_n_tokens(item),
    )


def _reasoning(item: Item, generated: bool) -> Iterator[Block]:
    """A block for every summary; the thoughts themselves where there is no summary."""
    texts = list(texts_of(item.get("summary"))) or list(texts_of(item.get("content")))
    if not texts and item.get("encrypted_content"):
        texts = ["(encrypted by the model's provider)"]
    for number, text in enumerate(texts):
        n_tokens = _n_tokens(item) if number == 0 else None
        yield Block("reasoning", _title("reasoning", generated), text, generated=generated, n_tokens=n_tokens)


def _kind(item: Item) -> BlockKind:
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    if is_tool_call(item):
        return "tool_call"
    return "tool_output" if isinstance(kind, str) and kind.endswith("_call_output") else "other"


def _title(kind: BlockKind, generated: bool, name: str | None = None) -> str:
    return _TITLES[kind][generated].replace("{name}", name or "a tool") if kind in _TITLES else ""


def _name_answers(blocks: Sequence[Block]) -> list[Block]:
    """Give the answers of tools the name of the tool that was called."""
    called = {block.call_id: block.name for block in blocks if block.kind == "tool_call"}
    return [
        replace(block, name=called.get(block.call_id)) if block.kind == "tool_output" and block.call_id else block
        for block in blocks
    ]


def _content(item: Item, kind: BlockKind) -> tuple[str, bool, tuple[str, ...]]:
    """Text, whether it is JSON, pictures."""
    if kind == "tool_call" and "arguments" in item:
        return *_indent(item["arguments"]), ()
    if kind == "tool_output" and "output" in item:
        output = item["output"]
        if isinstance(output, list) and (texts := list(texts_of(output))):
            return "\n".join(texts), False, safe_images(output)
        return *_indent(output), safe_images(output)
    if kind in ("tool_call", "tool_output", "other"):
        return pretty(item), True, ()
    content = item.get("content")
    texts = list(texts_of(content))
    unread = [part for part in _list(content) if not list(texts_of([part])) and not safe_images([part])]
    # A part that is neither text nor a picture that can be shown is still there for the reader.
    return "\n\n".join([*texts, *map(pretty, unread)]), False, safe_images(content)


def _indent(value: Any) -> tuple[str, bool]:
    """A value, or the JSON in a text, indented; a text that is no JSON object or list stays as it is."""
    if isinstance(value, str):
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:
            return value, False
        return (pretty(parsed), True) if isinstance(parsed, (dict, list)) else (value, False)
    return pretty(value), True


def _n_tokens(item: Item) -> int | None:
    ids = item.get("generation_token_ids")
    return len(ids) if isinstance(ids, list) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_SAFE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=]+")


def safe_images(content: Any) -> tuple[str, ...]:
    """The data URLs of the pictures in a list of content parts."""
    if not isinstance(content, list):
        return ()
    urls = (_url(part) for part in content if isinstance(part, dict))
    return tuple(url for url in urls if isinstance(url, str) and _SAFE.fullmatch(url))


def _url(part: dict[str, Any]) -> Any:
    url = part.get("image_url")
    return url.get("url") if isinstance(url, dict) else url


@dataclass(frozen=True)
class ModelCall:
    number: int
    """Counts from 1."""
    model: str | None
    status_code: int | None
    error: str | None
    finish_reason: str | None
    """How the model's answer ended."""
    latency_ms: float | None
    ttft_ms: float | None
    """Until the first byte of the answer."""
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None


def captured_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the captured calls of a row in order, each with its request and response; none without a capture.

    A row holds what each call took under `ng_model_call_capture`, and what was said in it under `ng_trajectory`.
    """
    told = [one for one in as_list(as_mapping(row.get(TRAJECTORY_KEY)).get("model_calls")) if isinstance(one, dict)]
    said = {
        one["model_call_id"]: {name: one[name] for name in ("request", "response") if one.get(name) is not None}
        for one in told
        if isinstance(one.get("model_call_id"), str)
    }
    calls = as_list(as_mapping(row.get(MODEL_CALL_CAPTURE_KEY)).get("calls"))
    return [
        {**call, **(said.get(call["model_call_id"], {}) if isinstance(call.get("model_call_id"), str) else {})}
        for call in calls
        if isinstance(call, dict)
    ]


def model_calls(row: Mapping[str, Any]) -> list[ModelCall]:
    """Return the calls that a row took, in order; none if there is no capture."""
    return [_call(number, call) for number, call in enumerate(captured_calls(row), 1)]


def said_in_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model and its tools said in the captured calls of a row, as the items of a response.

    For a rollout that failed, and has no response of its own.
    """
    items: list[dict[str, Any]] = []
    answered: set[str] = set()
    for call in captured_calls(row):
        if items:
            for answer in _tool_answers(call.get("request")):
                if answer["call_id"] not in answered:
                    answered.add(answer["call_id"])
                    items.append(answer)
        for item in answer_items(call.get("response")):
            items += _as_response_items(item)
    return items


def _tool_answers(request: Any) -> Iterator[dict[str, Any]]:
    """The answers of tools that a request hands to the model, in either dialect."""
    asked = request if isinstance(request, dict) else {}
    for item in (*as_list(asked.get("input")), *as_list(asked.get("messages"))):
        if not isinstance(item, dict):
            continue
        if item.get("role") == "tool":
            item = {"type": "function_call_output", "call_id": item.get("tool_call_id"), "output": item.get("content")}
        if item.get("type") == "function_call_output" and isinstance(item.get("call_id"), str):
            yield item


def _as_response_items(item: dict[str, Any]) -> list[dict[str, Any]]:
    """An output item as it is; a chat message as its text and its tool calls."""
    if "tool_calls" not in item:
        return [item]
    said = [{"role": "assistant", "content": item["content"]}] if item.get("content") else []
    calls = [call for call in as_list(item["tool_calls"]) if isinstance(call, dict)]
    functions = [(call, call["function"]) for call in calls if isinstance(call.get("function"), dict)]
    return [*said, *({"type": "function_call", "call_id": call.get("id"), **function} for call, function in functions)]


def _call(number: int, call: Mapping[str, Any]) -> ModelCall:
    named = as_mapping(call.get("model_ref")).get("name")
    return ModelCall(
        number=number,
        model=_text(named) or _text(call.get("model")),
        status_code=_count(call.get("status_code")),
        error=_text(call.get("error_category")),
        finish_reason=_text(call.get("finish_reason")) or _text(call.get("response_status")),
        latency_ms=_number(call.get("latency_total_ms")),
        ttft_ms=_number(call.get("latency_ttft_ms")),
        input_tokens=_count(call.get("tokens_in")),
        output_tokens=_count(call.get("tokens_out")),
        cached_tokens=_count(call.get("cached_tokens")),
        reasoning_tokens=_count(call.get("tokens_reasoning")),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None
