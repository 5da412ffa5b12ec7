# SPDX-License-Identifier: Apache-2.0
"""Streamed Responses requests: fit what a streaming client sends to the schema, and replay a reply as events.

Coding agents send more than the schema knows: extra fields, tool kinds, item kinds, tools in namespaces. A plain
request with these is rejected; a streaming one is trimmed, and the log says what was dropped. Messages, reasoning and
function calls are left to the schema, as is anything malformed: its error says where. Streams are text, one event per
piece.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from time import time
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym._wire.converters.to_chat import join_text
from nemo_gym._wire.schema.item_unions import NeMoGymResponseInputItem
from nemo_gym._wire.schema.items import (
    NeMoGymFunctionCallOutput,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
)
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming, build_function_tool
from nemo_gym._wire.schema.tokens import TOKEN_METADATA_FIELDS
from nemo_gym._wire.streaming import ToolNames, stream_response, stream_response_failure

LOG = logging.getLogger(__name__)

NamespaceMap = ToolNames
Json = Mapping[str, Any]

_PARAMS = frozenset(NeMoGymResponseCreateParamsNonStreaming.model_fields) - {"stream"}
_ITEM_FIELDS = {
    "message": {*NeMoGymResponseOutputMessage.model_fields, *TOKEN_METADATA_FIELDS},
    "reasoning": {*NeMoGymResponseReasoningItem.model_fields, *TOKEN_METADATA_FIELDS},
    "function_call": {*NeMoGymResponseFunctionToolCall.model_fields, *TOKEN_METADATA_FIELDS},
    "function_call_output": {*NeMoGymFunctionCallOutput.model_fields},
}


def flatten_namespace_tools(tools: Sequence[Any] | None) -> tuple[list[Any], dict[str, tuple[str, str]]]:
    """Return `tools` with namespaced ones renamed to `<namespace>__<name>`, and the parts of every joined name."""
    flat = _FlatTools([], functions_only=False)
    flat.add_all(tools or [])
    return flat.tools, flat.names


def sanitize_streaming_responses_body(
    body: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Return `body` without what the schema does not know, and the parts of every joined tool name.

    Of the tools, only functions are kept: every model server can handle those. An input item is dropped only if it fits
    no kind of item. `body` itself is not modified.
    """
    dropped = [f"field {name!r}" for name in body if name not in _PARAMS and name not in ("stream", "stream_options")]
    params = {name: value for name, value in body.items() if name in _PARAMS}
    given = body.get("input")
    items = given if isinstance(given, list) else []
    hoisted = [item for item in items if _is_readable(item) and item.get("type") == "additional_tools"]
    tools = _FlatTools(dropped)
    tools.add_all([*(body.get("tools") or []), *(tool for item in hoisted for tool in item.get("tools") or [])])
    if isinstance(given, list):
        kept = [_trim_item(index, item, dropped) for index, item in enumerate(items)]
        _hoist_instructions(params, [item for item in kept if item is not None])
    _set_tools(params, tools, dropped)
    if dropped:
        LOG.info("dropped from a streamed request: %s", ", ".join(dropped))
    return params, tools.names


def validate_streaming_responses_params(body: Mapping[str, Any]) -> NeMoGymResponseCreateParamsNonStreaming:
    """Validate a sanitized `body`, after removing fields at any depth that the schema forbids."""
    pruned: Any = body
    while True:
        try:
            return NeMoGymResponseCreateParamsNonStreaming.model_validate(pruned)
        except ValidationError as error:
            pruned = deepcopy(pruned)
            if not _prune_forbidden_fields(pruned, error):
                raise


def synthesize_responses_sse(response: BaseModel | Mapping[str, Any], map: NamespaceMap | None = None) -> Iterator[str]:
    """Replay `response` in the fewest events: created, every finished item, and how it ended.

    Tools get back the names in `map`. Model servers stream all events of the official API.
    """
    for event in stream_response(response, map, items_only=True):
        yield event.decode()


def synthesize_responses_failure_sse(
    message: str, *, code: str = "server_error", model: str | None = None
) -> Iterator[str]:
    """Replay a backend failure: a stream that ends with `response.failed`."""
    failed = stream_response_failure(
        message, response_id=f"resp_{uuid4().hex}", created_at=int(time()), model=model, code=code
    )
    for event in failed:
        yield event.decode()


def _prune_forbidden_fields(body: Any, error: ValidationError) -> int:
    """Delete the fields of `body` that `error` says are forbidden, and return how many there were."""
    pruned = 0
    for problem in error.errors(include_url=False):
        if problem["type"] != "extra_forbidden":
            continue
        *path, name = problem["loc"]
        holder = body
        for step in path:
            is_key = isinstance(holder, dict) and step in holder
            if is_key or (isinstance(holder, list) and isinstance(step, int)):
                holder = holder[step]
            # Any other step is a union tag.
        if isinstance(holder, dict) and name in holder:
            del holder[name]
            pruned += 1
    return pruned


class _FlatTools:
    """The tools of a request as a flat list: functions as the API wants them, or tools of every type unchanged."""

    def __init__(self, dropped: list[str], *, functions_only: bool = True) -> None:
        self.tools: list[Any] = []
        self.names: dict[str, tuple[str, str]] = {}
        self._taken: set[str] = set()
        self._dropped = dropped
        self._functions_only = functions_only

    def add_all(self, tools: Sequence[Any], namespace: str | None = None) -> None:
        for tool in tools:
            if not _is_readable(tool):
                self.tools.append(tool)
            elif tool.get("type") == "namespace":
                self.add_all(tool.get("tools") or [], tool.get("name"))
            else:
                self._add(tool, namespace)

    def _add(self, tool: Json, namespace: str | None) -> None:
        kind = tool.get("type")
        name = tool.get("name") or ""
        joined = _join_name(name, namespace)
        if (self._functions_only and kind != "function") or (joined and joined in self._taken):
            self._dropped.append(f"tool {joined!r} of type {kind!r}")
            return
        self._taken.add(joined)
        if namespace:
            self.names[joined] = (namespace, name)
        if self._functions_only:
            settings = {setting: tool.get(setting) for setting in ("description", "parameters", "strict")}
            self.tools.append(build_function_tool(joined, **settings))
        else:
            self.tools.append({**tool, "name": joined} if namespace else dict(tool))

    def has(self, choice: Json) -> bool:
        name = choice.get("name")
        is_known = name is None or _join_name(name, choice.get("namespace")) in self._taken
        return choice.get("type") == "function" and is_known


def _is_readable(value: Any) -> bool:
    """Return whether `value` is an object whose keys read here have the right types."""
    if not isinstance(value, Mapping):
        return False
    words = all(isinstance(value.get(key), str | None) for key in ("type", "name", "namespace", "role"))
    return words and isinstance(value.get("tools"), list | None)


def _join_name(name: str, namespace: str | None) -> str:
    return f"{namespace}__{name}" if namespace else name


@cache
def _make_input_item_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(NeMoGymResponseInputItem)


def _trim_item(index: int, item: Any, dropped: list[str]) -> Any:
    """Return the item without its unknown fields; None if its type is unknown."""
    if not _is_readable(item):
        return item
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "additional_tools":
        return None
    if kind not in _ITEM_FIELDS:
        try:
            _make_input_item_adapter().validate_python(item)
        except ValidationError:
            dropped.append(f"input item {index} of type {kind!r}")
            return None
        return dict(item)
    kept = {name: value for name, value in item.items() if name in _ITEM_FIELDS[kind]}
    if kind == "function_call" and item.get("namespace"):
        kept["name"] = _join_name(item.get("name") or "", item["namespace"])
    if kind == "reasoning":
        # A client that keeps no state on the server sends reasoning back without its id.
        kept = {**kept, "id": item.get("id") or f"rs_{index}", "summary": item.get("summary") or []}
    return kept


def _hoist_instructions(params: dict[str, Any], items: list[Any]) -> None:
    """Move the system and developer messages at the start of the conversation into the instructions."""
    texts = [params["instructions"]] if params.get("instructions") else []
    hoisted = 0
    for item in items:
        text = _read_instruction(item)
        if text is None:
            break
        texts.append(text)
        hoisted += 1
    if hoisted:
        params["instructions"] = "\n\n".join(texts)
    params["input"] = items[hoisted:]


def _read_instruction(item: Any) -> str | None:
    if not _is_readable(item) or item.get("role") not in ("system", "developer"):
        return None
    content = item.get("content")
    if isinstance(content, list) and not all(isinstance(part, Mapping) for part in content):
        return None
    return join_text(content) if isinstance(content, str | list) else None


def _set_tools(params: dict[str, Any], tools: _FlatTools, dropped: list[str]) -> None:
    choice = params.pop("tool_choice", None)
    if not tools.tools:
        params.pop("tools", None)
        params.pop("parallel_tool_calls", None)
        return
    params["tools"] = tools.tools
    kept = choice
    if choice is not None and not isinstance(choice, str):
        kept = _trim_choice(choice, tools)
    if kept is not None:
        params["tool_choice"] = kept
    elif choice is not None:
        dropped.append(f"tool_choice {choice!r}")


def _trim_choice(choice: Any, tools: _FlatTools) -> Any:
    if not _is_readable(choice):
        return choice
    if choice.get("type") == "allowed_tools":
        given = choice.get("tools") or []
        allowed = [_flatten_choice(tool) for tool in given if _is_readable(tool) and tools.has(tool)]
        return {**choice, "tools": allowed} if allowed else None
    return _flatten_choice(choice) if tools.has(choice) else None


def _flatten_choice(choice: Json) -> dict[str, Any]:
    kept = {name: value for name, value in choice.items() if name != "namespace"}
    if choice.get("name"):
        kept["name"] = _join_name(choice["name"], choice.get("namespace"))
    return kept
