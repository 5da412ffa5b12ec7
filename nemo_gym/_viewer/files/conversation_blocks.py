# SPDX-License-Identifier: Apache-2.0
"""The items of a conversation as titled blocks: who says what, whether it was given or generated, as text or as JSON.

An item of unknown shape is shown as its JSON. Captured model calls are read here too: the cost of each and, for a
rollout that failed before it had a response, what was said in them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from nemo_gym._training.capture.call_records import list_answer_items
from nemo_gym._util.json_shapes import as_int, as_list, as_mapping, as_number, as_text
from nemo_gym._util.row_keys import MODEL_CALL_CAPTURE_KEY, TRAJECTORY_KEY
from nemo_gym._viewer.files.row_facts import is_tool_call, iter_texts, read_tool_name

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
"""The titles of each kind of block: given to the model, or made by the model or a tool."""
ANSWER_TITLE = "Answer"
# Only raster images inside the row: links are not followed, and SVG may hold scripts.
_SAFE_IMAGE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=]+")


@dataclass(frozen=True)
class Block:
    """One item of the conversation."""

    kind: BlockKind
    title: str
    text: str
    is_json: bool = False
    """Whether the text is indented JSON."""
    status: str | None = None
    name: str | None = None
    """The tool that is called, or that answers."""
    call_id: str | None = None
    generated: bool = False
    """Whether it is part of the response rather than the input."""
    images: tuple[str, ...] = ()
    """Pictures inside the row, as data URLs that are safe to show."""
    n_tokens: int | None = None
    """How many tokens the model generated for it, if the row holds them."""
    error: str | None = None
    """How the tool that should have answered crashed."""
    step: tuple[int, float] | None = None
    """The environment step that the model took with it, counted from 1, and its reward."""


def read_blocks(given: Sequence[Any], generated: Sequence[Any]) -> list[Block]:
    """Return the blocks of the model's input, then of what it and its tools produced."""
    blocks = [block for item in given for block in _iter_blocks(item, generated=False)]
    made = [block for item in generated for block in _iter_blocks(item, generated=True)]
    if made and made[-1].kind == "assistant":
        made[-1] = replace(made[-1], title=ANSWER_TITLE)
    blocks += made
    called = {block.call_id: block.name for block in blocks if block.kind == "tool_call"}
    for at, block in enumerate(blocks):
        if block.kind == "tool_output" and block.call_id:
            blocks[at] = replace(block, name=called.get(block.call_id))
    return blocks


def list_input_items(params: Item) -> list[Any]:
    """Return the input of a request as items, instructions first."""
    items = _list_items(params.get("input"), "user")
    if instructions := as_text(params.get("instructions")):
        return [{"role": "system", "content": instructions}, *items]
    return items


def list_output_items(response: Item) -> list[Any]:
    """Return the output of a response as items."""
    return _list_items(response.get("output"), "assistant")


def _list_items(content: Any, role: str) -> list[Any]:
    """Return a list of items unchanged, and a text as the message of `role`."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    return as_list(content)


def mark_tool_errors(blocks: Sequence[Block], errors: Sequence[Item]) -> list[Block]:
    """Mark the answers of crashed tools with the status of the crash; skip an error that fits no answer."""
    marked = list(blocks)
    for error in errors:
        tool = error.get("tool")
        message = str(error.get("message") or "")
        calls = [at for at, one in enumerate(marked) if one.kind == "tool_output" and one.name == tool]
        unmarked = [at for at in calls if not marked[at].error]
        fitting = [at for at in unmarked if message and message in marked[at].text]
        # If every call of a tool crashed, no message is needed to tell which ones did.
        if not fitting and sum(other.get("tool") == tool for other in errors) >= len(calls):
            fitting = unmarked
        if fitting:
            marked[fitting[0]] = replace(marked[fitting[0]], error=f"crashed with status {error.get('status')}")
    return marked


def mark_step_rewards(blocks: Sequence[Block], rewards: Sequence[Any]) -> list[Block]:
    """Mark the last block of every turn of the model with the reward of its step.

    If there are not as many turns as rewards, they cannot be matched, and nothing is marked.
    """
    by_model = [one.generated and one.kind in ("assistant", "reasoning", "tool_call") for one in blocks]
    ends = [at for at, own in enumerate(by_model) if own and not (at + 1 < len(blocks) and by_model[at + 1])]
    marked = list(blocks)
    if len(ends) == len(rewards):
        for step, (at, given) in enumerate(zip(ends, rewards, strict=True), 1):
            if (reward := as_number(given)) is not None:
                marked[at] = replace(marked[at], step=(step, reward))
    return marked


def format_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()


def format_value(value: Any) -> str:
    """Return a text as it is, and any other value as indented JSON."""
    return value if isinstance(value, str) else format_json(value)


def _iter_blocks(item: Any, *, generated: bool) -> Iterator[Block]:
    """Yield the block of an item; for reasoning, one per summary, or the reasoning text if there is no summary."""
    if not isinstance(item, dict):
        item = {"type": "unknown", "value": item}
    ids = item.get("generation_token_ids")
    n_tokens = len(ids) if isinstance(ids, list) else None
    if item.get("type") == "reasoning":
        texts = list(iter_texts(item.get("summary"))) or list(iter_texts(item.get("content")))
        if not texts and item.get("encrypted_content"):
            texts = ["(encrypted by the model's provider)"]
        for number, text in enumerate(texts):
            title = _TITLES["reasoning"][generated]
            yield Block("reasoning", title, text, generated=generated, n_tokens=None if number else n_tokens)
        return
    kind = _detect_kind(item)
    title = str(item.get("type") or item.get("role") or "Item")
    name = None
    if kind in _TITLES:
        title = _TITLES[kind][generated]
    if kind == "tool_call":
        name = read_tool_name(item)
        title = title.replace("{name}", name or "a tool")
    call_id = None
    if kind in ("tool_call", "tool_output"):
        call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    text, is_json, images = _read_content(item, kind)
    yield Block(
        kind=kind,
        title=title,
        text=text,
        is_json=is_json,
        status=as_text(item.get("status")),
        name=name,
        call_id=call_id,
        generated=generated,
        images=images,
        n_tokens=n_tokens,
    )


def _detect_kind(item: Item) -> BlockKind:
    role = item.get("role")
    kind = item.get("type")
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    if is_tool_call(item):
        return "tool_call"
    return "tool_output" if isinstance(kind, str) and kind.endswith("_call_output") else "other"


def _read_content(item: Item, kind: BlockKind) -> tuple[str, bool, tuple[str, ...]]:
    """Return the text, whether it is JSON, and the pictures."""
    if kind == "tool_call" and "arguments" in item:
        return *_indent(item["arguments"]), ()
    if kind == "tool_output" and "output" in item:
        output = item["output"]
        if isinstance(output, list) and (texts := list(iter_texts(output))):
            return "\n".join(texts), False, _find_images(output)
        return *_indent(output), _find_images(output)
    if kind in ("tool_call", "tool_output", "other"):
        return format_json(item), True, ()
    content = item.get("content")
    # Also show the reader a part that is neither text nor a showable picture.
    unread = [part for part in as_list(content) if not list(iter_texts([part])) and not _find_images([part])]
    return "\n\n".join([*iter_texts(content), *map(format_json, unread)]), False, _find_images(content)


def _find_images(content: Any) -> tuple[str, ...]:
    """Return the data URLs of the pictures in a list of content parts that can be shown without network access."""
    images = [part.get("image_url") for part in as_list(content) if isinstance(part, dict)]
    urls = [image.get("url") if isinstance(image, dict) else image for image in images]
    return tuple(url for url in urls if isinstance(url, str) and _SAFE_IMAGE.fullmatch(url))


def _indent(value: Any) -> tuple[str, bool]:
    """Indent a value, or the JSON in a text; a text that is not a JSON object or list stays unchanged."""
    if isinstance(value, str):
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:
            return value, False
        if not isinstance(parsed, (dict, list)):
            return value, False
        value = parsed
    return format_json(value), True


# --- captured calls ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelCall:
    """The cost of one model call, and how it ended."""

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


def read_captured_calls(row: Item) -> list[dict[str, Any]]:
    """Return the captured calls of a row in order, each with its request and response; none without a capture.

    A row holds the cost of each call under `ng_model_call_capture`, and its content under `ng_trajectory`.
    """
    said = {
        one["model_call_id"]: {name: one[name] for name in ("request", "response") if one.get(name) is not None}
        for one in as_list(as_mapping(row.get(TRAJECTORY_KEY)).get("model_calls"))
        if isinstance(one, dict) and isinstance(one.get("model_call_id"), str)
    }
    calls = as_list(as_mapping(row.get(MODEL_CALL_CAPTURE_KEY)).get("calls"))
    return [{**call, **said.get(as_text(call.get("model_call_id")), {})} for call in calls if isinstance(call, dict)]


def read_model_calls(row: Item) -> list[ModelCall]:
    """Return a row's model calls in order; none if there is no capture."""
    return [
        ModelCall(
            number=number,
            model=as_text(as_mapping(call.get("model_ref")).get("name")) or as_text(call.get("model")),
            status_code=as_int(call.get("status_code")),
            error=as_text(call.get("error_category")),
            finish_reason=as_text(call.get("finish_reason")) or as_text(call.get("response_status")),
            latency_ms=as_number(call.get("latency_total_ms")),
            ttft_ms=as_number(call.get("latency_ttft_ms")),
            input_tokens=as_int(call.get("tokens_in")),
            output_tokens=as_int(call.get("tokens_out")),
            cached_tokens=as_int(call.get("cached_tokens")),
            reasoning_tokens=as_int(call.get("tokens_reasoning")),
        )
        for number, call in enumerate(read_captured_calls(row), 1)
    ]


def read_captured_items(row: Item) -> list[dict[str, Any]]:
    """Return what the model and its tools said in a row's captured calls, as the items of a response."""
    items: list[dict[str, Any]] = []
    answered: set[str] = set()
    for call in read_captured_calls(row):
        if items:
            for answer in _iter_tool_answers(as_mapping(call.get("request"))):
                if answer["call_id"] not in answered:
                    answered.add(answer["call_id"])
                    items.append(answer)
        for item in list_answer_items(call.get("response")):
            items += _split_chat_message(item)
    return items


def _iter_tool_answers(request: Item) -> Iterator[dict[str, Any]]:
    """Yield the tool answers that a request passes to the model, in either dialect."""
    for item in (*as_list(request.get("input")), *as_list(request.get("messages"))):
        if not isinstance(item, dict):
            continue
        if item.get("role") == "tool":
            item = {"type": "function_call_output", "call_id": item.get("tool_call_id"), "output": item.get("content")}
        if item.get("type") == "function_call_output" and isinstance(item.get("call_id"), str):
            yield item


def _split_chat_message(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an output item unchanged; split a chat message into its text and its tool calls."""
    if "tool_calls" not in item:
        return [item]
    items: list[dict[str, Any]] = []
    if item.get("content"):
        items.append({"role": "assistant", "content": item["content"]})
    for call in as_list(item["tool_calls"]):
        function = as_mapping(call).get("function")
        if isinstance(function, dict):
            items.append({"type": "function_call", "call_id": call.get("id"), **function})
    return items
