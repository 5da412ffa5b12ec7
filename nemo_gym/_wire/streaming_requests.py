# SPDX-License-Identifier: Apache-2.0
"""Makes a streaming client's Responses request fit the strict schema, and remembers how to talk back to that client.

Coding agents send more than this framework's schema knows: fields, tool kinds, item kinds, tools in namespaces. A plain
request is refused for them; a streaming one is trimmed, and says what it lost. Messages, reasoning and function calls
are left to the schema, and so is everything that is not even shaped like what it should be: that error names the place.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from nemo_gym._wire.item_unions import NeMoGymResponseInputItem
from nemo_gym._wire.items import (
    NeMoGymFunctionCallOutput,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
)
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming, build_function_tool
from nemo_gym._wire.to_chat import join_text
from nemo_gym._wire.tokens import TOKEN_METADATA_FIELDS

Json = Mapping[str, Any]
ToolNames = Mapping[str, tuple[str, str]]
"""Joined tool names, and the namespace and name that each stands for."""

FUNCTIONS = frozenset({"function"})

_PARAMS = frozenset(NeMoGymResponseCreateParamsNonStreaming.model_fields) - {"stream"}
_ITEM_FIELDS = {
    "message": {*NeMoGymResponseOutputMessage.model_fields, *TOKEN_METADATA_FIELDS},
    "reasoning": {*NeMoGymResponseReasoningItem.model_fields, *TOKEN_METADATA_FIELDS},
    "function_call": {*NeMoGymResponseFunctionToolCall.model_fields, *TOKEN_METADATA_FIELDS},
    "function_call_output": {*NeMoGymFunctionCallOutput.model_fields},
}


class PreparedRequest(NamedTuple):
    """A streaming request that fits the strict schema."""

    params: dict[str, Any]
    tool_names: ToolNames
    dropped: tuple[str, ...]
    """What the request lost, in words, for the log."""


def prepare_streaming_request(raw: Json, *, tool_types: Collection[str] = FUNCTIONS) -> PreparedRequest:
    """Return `raw` without what this side does not know; `raw` itself is left alone.

    By default the tools that every model server can handle are kept; one in front of a Responses endpoint can name more
    types.
    """
    dropped = [f"field {name!r}" for name in raw if name not in _PARAMS and name not in ("stream", "stream_options")]
    params = {name: value for name, value in raw.items() if name in _PARAMS}
    given = raw.get("input")
    items = given if isinstance(given, list) else []
    tools = _FlatTools(tool_types, dropped)
    hoisted = [item for item in items if _is_shaped(item) and item.get("type") == "additional_tools"]
    tools.add_all([*(raw.get("tools") or []), *(tool for item in hoisted for tool in item.get("tools") or [])])
    if isinstance(given, list):
        kept = [_trim_item(index, item, dropped) for index, item in enumerate(items)]
        _hoist_instructions(params, [item for item in kept if item is not None])
    _set_tools(params, tools, dropped)
    return PreparedRequest(params, tools.names, tuple(dropped))


def restore_tool_name(item: Json, tool_names: ToolNames) -> Json:
    """Return an output item as the client knows its tools."""
    if item["type"] != "function_call" or item["name"] not in tool_names:
        return item
    namespace, name = tool_names[item["name"]]
    return {**item, "name": name, "namespace": namespace}


def flatten_namespaces(tools: Sequence[Any]) -> tuple[list[Any], dict[str, tuple[str, str]]]:
    """Return `tools` of every kind in one flat list, and what the names of those from namespaces stand for."""
    flattened = _FlatTools(None, [])
    flattened.add_all(tools)
    return flattened.flat, flattened.names


def prune_forbidden_fields(body: Any, error: ValidationError) -> int:
    """Delete the fields from `body` that `error` says are forbidden, and return how many they were."""
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
            # Any other step is the tag of a union.
        if isinstance(holder, dict) and name in holder:
            del holder[name]
            pruned += 1
    return pruned


class _FlatTools:
    """The tools of a request in one flat list; without `types`, tools of all types, as they are."""

    def __init__(self, types: Collection[str] | None, dropped: list[str]) -> None:
        self.flat: list[Any] = []
        self.names: dict[str, tuple[str, str]] = {}
        self._taken: set[str] = set()
        self._types, self._dropped = types, dropped

    def add_all(self, tools: Sequence[Any], namespace: str | None = None) -> None:
        for tool in tools:
            if not _is_shaped(tool):
                self.flat.append(tool)
            elif tool.get("type") == "namespace":
                self.add_all(tool.get("tools") or [], tool.get("name"))
            else:
                self._add(tool, namespace)

    def _add(self, tool: Json, namespace: str | None) -> None:
        kind, name = tool.get("type"), tool.get("name") or ""
        flat = join_name(name, namespace)
        if (self._types is not None and kind not in self._types) or (flat and flat in self._taken):
            self._dropped.append(f"tool {flat!r} of type {kind!r}")
            return
        self._taken.add(flat)
        if namespace:
            self.names[flat] = (namespace, name)
        if kind == "function" and self._types is not None:
            settings = {setting: tool.get(setting) for setting in ("description", "parameters", "strict")}
            self.flat.append(build_function_tool(flat, **settings))
        else:
            self.flat.append({**tool, "name": flat} if namespace else dict(tool))

    def knows(self, choice: Json) -> bool:
        name = choice.get("name")
        return choice.get("type") in (self._types or ()) and (
            name is None or join_name(name, choice.get("namespace")) in self._taken
        )


def _is_shaped(value: Any) -> bool:
    """Return whether `value` is an object whose few keys that are read here can be read."""
    if not isinstance(value, Mapping):
        return False
    words = all(isinstance(value.get(key), str | None) for key in ("type", "name", "namespace", "role"))
    return words and isinstance(value.get("tools"), list | None)


def join_name(name: str, namespace: str | None) -> str:
    return f"{namespace}__{name}" if namespace else name


@cache
def _input_item_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(NeMoGymResponseInputItem)


def _trim_item(index: int, item: Any, dropped: list[str]) -> Any:
    """Return the item without what is unknown about it; None if it is unknown itself."""
    if not _is_shaped(item):
        return item
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "additional_tools":
        return None
    if kind not in _ITEM_FIELDS:
        try:
            _input_item_adapter().validate_python(item)
        except ValidationError:
            dropped.append(f"input item {index} of type {kind!r}")
            return None
        return dict(item)
    kept = {name: value for name, value in item.items() if name in _ITEM_FIELDS[kind]}
    if kind == "function_call" and item.get("namespace"):
        kept["name"] = join_name(item.get("name") or "", item["namespace"])
    if kind == "reasoning":
        # A client that keeps no state on the server sends reasoning back without its id.
        kept = {**kept, "id": item.get("id") or f"rs_{index}", "summary": item.get("summary") or []}
    return kept


def _hoist_instructions(params: dict[str, Any], items: list[Any]) -> None:
    """Move the system and developer messages that open the conversation into the instructions."""
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
    if not _is_shaped(item) or item.get("role") not in ("system", "developer"):
        return None
    content = item.get("content")
    if isinstance(content, list) and not all(isinstance(part, Mapping) for part in content):
        return None
    return join_text(content) if isinstance(content, str | list) else None


def _set_tools(params: dict[str, Any], tools: _FlatTools, dropped: list[str]) -> None:
    choice = params.pop("tool_choice", None)
    if not tools.flat:
        params.pop("tools", None)
        params.pop("parallel_tool_calls", None)
        return
    params["tools"] = tools.flat
    kept = choice if choice is None or isinstance(choice, str) else _trim_choice(choice, tools)
    if kept is not None:
        params["tool_choice"] = kept
    elif choice is not None:
        dropped.append(f"tool_choice {choice!r}")


def _trim_choice(choice: Any, tools: _FlatTools) -> Any:
    if not _is_shaped(choice):
        return choice
    if choice.get("type") == "allowed_tools":
        given = choice.get("tools") or []
        allowed = [_flatten_choice(tool) for tool in given if _is_shaped(tool) and tools.knows(tool)]
        return {**choice, "tools": allowed} if allowed else None
    return _flatten_choice(choice) if tools.knows(choice) else None


def _flatten_choice(choice: Json) -> dict[str, Any]:
    kept = {name: value for name, value in choice.items() if name != "namespace"}
    return {**kept, "name": join_name(choice["name"], choice.get("namespace"))} if choice.get("name") else kept
