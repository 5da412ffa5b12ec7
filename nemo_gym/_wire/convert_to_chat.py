# SPDX-License-Identifier: Apache-2.0
"""A Responses request as a Chat Completions request: items become messages, parameters change their names.

Lost on the way, because chat has no place for it: ids and status of items, `encrypted_content` of reasoning, `strict`
of tools, the order of text and calls within one assistant turn, and the parameters background, include (but for
log-probs), max_tool_calls, previous_response_id, prompt and truncation. Item and tool types that chat cannot express
are errors.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from nemo_gym._wire import convert_parts, convert_think
from nemo_gym._wire.chat_params import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym._wire.convert_plain import plain
from nemo_gym._wire.convert_state import ResponsesConverterState
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.tokens import token_fields_of

Item = Mapping[str, Any]

SAME_PARAMS = ("metadata", "model", "service_tier", "store", "temperature", "top_p", "user")
EXTRA_BODY = "extra_body"
_LOGPROBS = "message.output_text.logprobs"
_INSTRUCTION_ROLES = ("system", "developer")


def input_items(params: NeMoGymResponseCreateParamsNonStreaming) -> list[dict[str, Any]]:
    """The items of the request as JSON-shaped dicts."""
    if isinstance(params.input, str):
        content = [{"type": "input_text", "text": params.input}]
        return [{"type": "message", "role": "user", "content": content}]
    return [plain(item) for item in params.input]


def add_message(item: Item, state: ResponsesConverterState) -> None:
    role, content = item["role"], item["content"] if item.get("content") is not None else ""
    if role == "assistant":
        _add_assistant_message(item, state)
    elif role == "tool":
        state.flush_assistant()
        state.messages.append({"role": "tool", "content": _tool_text(content), "tool_call_id": item["tool_call_id"]})
    elif role in ("user", *_INSTRUCTION_ROLES):
        state.flush_assistant()
        state.messages.append({"role": role, "content": convert_parts.content_to_chat(content)})
    else:
        raise NotImplementedError(f"a message with role {role!r} has no form in the Chat Completions API")


def _add_assistant_message(item: Item, state: ResponsesConverterState) -> None:
    content = item.get("content") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match part["type"]:
            case "output_text" | "input_text" | "text":
                state.say(part["text"])
            case "refusal":
                state.say(refusal=part["refusal"])
            case kind:
                raise NotImplementedError(f"content part {kind!r} has no form in an assistant's chat message")
    state.say()
    for call in item.get("tool_calls") or []:
        state.call(dict(call))
    _attach_tokens(item, state)


def add_reasoning(item: Item, state: ResponsesConverterState) -> None:
    """Each summary as a `<think>` block; the full reasoning text stands in where there is no summary."""
    thoughts = item.get("summary") or item.get("content") or []
    state.say(convert_think.wrap(thought["text"] for thought in thoughts))
    _attach_tokens(item, state)


def add_function_call(item: Item, state: ResponsesConverterState) -> None:
    function = {"name": item["name"], "arguments": item["arguments"]}
    state.call({"id": item["call_id"], "type": "function", "function": function})
    _attach_tokens(item, state)


def add_function_call_output(item: Item, state: ResponsesConverterState) -> None:
    state.flush_assistant()
    state.messages.append({"role": "tool", "content": _tool_text(item["output"]), "tool_call_id": item["call_id"]})


def _tool_text(output: str | Iterable[Item] | None) -> str | list[dict[str, Any]]:
    if output is None or isinstance(output, str):
        return output or ""
    parts = list(output)
    if others := [part["type"] for part in parts if part["type"] not in ("input_text", "text")]:
        raise NotImplementedError(f"a tool's output can only be text in the Chat Completions API, not {others[0]!r}")
    return [convert_parts.to_chat(part) for part in parts]


def _attach_tokens(item: Item, state: ResponsesConverterState) -> None:
    if state.return_token_id_information and (tokens := token_fields_of(item)):
        state.attach(tokens)


def create_params(
    params: NeMoGymResponseCreateParamsNonStreaming, messages: list[dict[str, Any]]
) -> NeMoGymChatCompletionCreateParamsNonStreaming:
    """The chat request with `messages`. It holds what the caller set and nothing more, and `messages` by reference:
    they were built here, so validating them again would only copy their token ids.
    """
    given = {name: plain(getattr(params, name)) for name in params.model_fields_set if name != "input"}
    given = {name: value for name, value in given.items() if value is not None}
    fields = {name: given[name] for name in SAME_PARAMS if name in given}
    fields |= _renamed(given) | _tool_params(given)
    verbosity = (given.get("text") or {}).get("verbosity")
    # A chat request has no field for it here, so it goes where model servers look for further fields.
    fields = with_extra_body(fields, {"verbosity": verbosity} if verbosity is not None else {})
    fields["messages"] = _with_instructions(given.get("instructions"), messages)
    return NeMoGymChatCompletionCreateParamsNonStreaming.model_construct(**fields)


def with_extra_body(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` with `extra` in `metadata.extra_body`, under what is there already."""
    if not extra:
        return fields
    metadata = fields.get("metadata") or {}
    present = orjson.loads(metadata.get(EXTRA_BODY) or "{}")
    merged = orjson.dumps({**extra, **present}).decode()
    return {**fields, "metadata": {**metadata, EXTRA_BODY: merged}}


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    text, reasoning = given.get("text") or {}, given.get("reasoning") or {}
    wants_logprobs = "top_logprobs" in given or _LOGPROBS in given.get("include", [])
    renamed = {
        "max_tokens": given.get("max_output_tokens"),
        "reasoning_effort": reasoning.get("effort"),
        "top_logprobs": given.get("top_logprobs"),
        "logprobs": wants_logprobs or None,
        "response_format": _response_format(text.get("format")),
    }
    return {name: value for name, value in renamed.items() if value is not None}


def _response_format(text_format: Item | None) -> dict[str, Any] | None:
    if not text_format or text_format["type"] != "json_schema":
        return dict(text_format) if text_format else None
    schema = {name: value for name, value in text_format.items() if name != "type" and value is not None}
    return {"type": "json_schema", "json_schema": schema}


def _tool_params(given: Mapping[str, Any]) -> dict[str, Any]:
    """Tools and how to use them. Endpoints refuse the latter where there are none."""
    tools, choice = given.get("tools") or [], given.get("tool_choice")
    if not tools:
        if choice == "required" or isinstance(choice, Mapping):
            raise ValueError(f"tool_choice {choice!r} asks for a tool call, but the request has no tools")
        return {}
    fields = {"tools": [_tool(tool) for tool in tools]}
    if choice is not None:
        fields["tool_choice"] = _tool_choice(choice)
    if "parallel_tool_calls" in given:
        fields["parallel_tool_calls"] = given["parallel_tool_calls"]
    return fields


def _tool(tool: Item) -> dict[str, Any]:
    if tool["type"] != "function":
        raise NotImplementedError(f"tool type {tool['type']!r} has no form in the Chat Completions API")
    names = ("name", "description", "parameters")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _tool_choice(choice: str | Item) -> Any:
    if isinstance(choice, str):
        return choice
    match choice["type"]:
        case "function":
            return {"type": "function", "function": {"name": choice["name"]}}
        case "allowed_tools":
            tools = [{"type": "function", "function": {"name": tool["name"]}} for tool in choice["tools"]]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
        case kind:
            raise NotImplementedError(f"tool_choice {kind!r} has no form in the Chat Completions API")


def _with_instructions(instructions: str | None, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One system message out of the instructions and the system or developer messages that open the conversation."""
    if not instructions:
        return messages
    texts, used = [instructions], 0
    for message in messages:
        text = convert_parts.text_only(message["content"]) if message["role"] in _INSTRUCTION_ROLES else None
        if text is None:
            break
        texts.append(text)
        used += 1
    return [{"role": "system", "content": "\n\n".join(texts)}, *messages[used:]]
