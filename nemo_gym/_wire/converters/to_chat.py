# SPDX-License-Identifier: Apache-2.0
"""A Responses request as a Chat Completions request: items become messages, parameters change their names.

Lost on the way, because chat has no place for it: ids and status of items, `encrypted_content` of reasoning, `strict`
of tools, the order of text and calls within one assistant turn, and the parameters background, include (but for
log-probs), max_tool_calls, previous_response_id, prompt and truncation. Content parts that already have chat's shape
pass unchanged, because datasets mix the two. Item, part and tool types that chat cannot express are errors.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from pydantic import BaseModel, Field

from nemo_gym._wire.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.schema.tokens import pick_token_fields
from nemo_gym._wire.schema.wire_model import to_plain

Item = Mapping[str, Any]
TokenInformation = dict[str, Any]

SAME_PARAMS = ("metadata", "model", "service_tier", "store", "temperature", "top_p", "user")
EXTRA_BODY = "extra_body"
_LOGPROBS = "message.output_text.logprobs"
_INSTRUCTION_ROLES = ("system", "developer")
_CHAT_PARTS = {"text", "image_url", "video_url", "audio_url", "input_audio", "file"}


class ResponsesConverterState(BaseModel):
    """Chat messages so far, and what the assistant has said since the last one."""

    return_token_id_information: bool = False
    messages: list[dict[str, Any]] = Field(default_factory=list)
    content_buffer: list[str] = Field(default_factory=list)
    refusal_buffer: list[str] = Field(default_factory=list)
    tool_calls_buffer: list[dict[str, Any]] = Field(default_factory=list)
    token_information: TokenInformation | None = None
    token_information_end: tuple[int, int, int] = (0, 0, 0)
    """How much of each buffer had been said when the token information came: what belongs to that model call."""
    assistant_is_open: bool = False

    def say(self, text: str = "", refusal: str = "") -> None:
        """Add to the assistant's turn. Even an empty text opens one: an empty reply is a turn too."""
        self.assistant_is_open = True
        if text:
            self.content_buffer.append(text)
        if refusal:
            self.refusal_buffer.append(refusal)

    def call(self, tool_call: dict[str, Any]) -> None:
        self.assistant_is_open = True
        self.tool_calls_buffer.append(tool_call)

    def attach_tokens(self, item: Item) -> None:
        """Note the tokens of `item`, if it has any and they are wanted: the model call that they belong to ends here.

        A second call in one turn gets a message of its own, because a message has room for the tokens of one.
        """
        tokens = pick_token_fields(item) if self.return_token_id_information else None
        if not tokens:
            return
        if self.token_information is not None:
            self._emit(*self.token_information_end)
        self.token_information = tokens
        self.token_information_end = self._measure_buffers()

    def flush_assistant(self) -> None:
        """Close the assistant's turn, if there is one."""
        if self.assistant_is_open:
            self._emit(*self._measure_buffers())
        self.assistant_is_open = False

    def _measure_buffers(self) -> tuple[int, int, int]:
        return len(self.content_buffer), len(self.refusal_buffer), len(self.tool_calls_buffer)

    def _emit(self, texts: int, refusals: int, calls: int) -> None:
        content = "".join(self.content_buffer[:texts])
        self.content_buffer = self.content_buffer[texts:]
        refusal = "".join(self.refusal_buffer[:refusals])
        self.refusal_buffer = self.refusal_buffer[refusals:]
        tool_calls = self.tool_calls_buffer[:calls]
        self.tool_calls_buffer = self.tool_calls_buffer[calls:]
        message: dict[str, Any] = {"role": "assistant", "content": content or None}
        if tool_calls:
            message["tool_calls"] = tool_calls
        if refusal:
            message["refusal"] = refusal
        if not (content or tool_calls or refusal):
            # Endpoints refuse a null content with nothing beside it.
            message["content"] = ""
        self.messages.append({**message, **(self.token_information or {})})
        self.token_information = None


def convert_part(part: Item) -> dict[str, Any]:
    """Convert an input part of the Responses API to a chat part."""
    match part["type"]:
        case "input_text" | "output_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            if not part.get("image_url"):
                raise NotImplementedError(
                    f"an image by file id cannot be sent through the Chat Completions API: {describe_part(part)}\n"
                    "hint: give `image_url`, a URL or a base64 data URL"
                )
            image = {"url": str(part["image_url"]), "detail": part.get("detail")}
            return {"type": "image_url", "image_url": _drop_nones(image)}
        case "input_video":
            source = part.get("video_url") or part.get("video")
            return {"type": "video_url", "video_url": {"url": source} if isinstance(source, str) else source}
        case "input_file":
            if part.get("file_url"):
                raise NotImplementedError(
                    f"a file by URL cannot be sent through the Chat Completions API: {describe_part(part)}\n"
                    "hint: give `file_data` or `file_id`"
                )
            file = {name: part.get(name) for name in ("file_data", "file_id", "filename")}
            return {"type": "file", "file": _drop_nones(file)}
        case kind if kind in _CHAT_PARTS:
            return dict(part)
        case kind:
            raise NotImplementedError(
                f"content part {kind!r} has no form in the Chat Completions API: {describe_part(part)}"
            )


def describe_part(part: Item) -> str:
    """Return `part` as text for an error, cut to a readable length."""
    text = repr(dict(part))
    return text if len(text) <= 200 else f"{text[:200]}…"


def join_text(content: str | Iterable[Item]) -> str | None:
    """Return the text of `content`, or None if it holds anything else."""
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content]
    return None if None in texts else "".join(map(str, texts))


def _drop_nones(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def list_input_items(params: NeMoGymResponseCreateParamsNonStreaming) -> list[dict[str, Any]]:
    """Return the items of the request as JSON-shaped dicts."""
    if isinstance(params.input, str):
        content = [{"type": "input_text", "text": params.input}]
        return [{"type": "message", "role": "user", "content": content}]
    return [to_plain(item) for item in params.input]


def add_message(item: Item, state: ResponsesConverterState) -> None:
    role = item["role"]
    content = item["content"] if item.get("content") is not None else ""
    if role == "assistant":
        _add_assistant_message(item, state)
    elif role == "tool":
        add_tool_output(content, item["tool_call_id"], state)
    elif role in ("user", *_INSTRUCTION_ROLES):
        chat_content = content if isinstance(content, str) else [convert_part(part) for part in content]
        state.flush_assistant()
        state.messages.append({"role": role, "content": chat_content})
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
    state.attach_tokens(item)


def add_tool_output(output: str | Iterable[Item] | None, call_id: str, state: ResponsesConverterState) -> None:
    content: str | list[dict[str, Any]]
    if output is None or isinstance(output, str):
        content = output or ""
    else:
        parts = list(output)
        if others := [part["type"] for part in parts if part["type"] not in ("input_text", "text")]:
            raise NotImplementedError(
                f"a tool's output can only be text in the Chat Completions API, not {others[0]!r}"
            )
        content = [convert_part(part) for part in parts]
    state.flush_assistant()
    state.messages.append({"role": "tool", "content": content, "tool_call_id": call_id})


def build_chat_params(
    params: NeMoGymResponseCreateParamsNonStreaming, messages: list[dict[str, Any]]
) -> NeMoGymChatCompletionCreateParamsNonStreaming:
    """Build the chat request with `messages`. It holds what the caller set and nothing more, and `messages` by
    reference: they were built here, so validating them again would only copy their token ids.
    """
    given = {name: to_plain(getattr(params, name)) for name in params.model_fields_set if name != "input"}
    given = _drop_nones(given)
    fields = {name: given[name] for name in SAME_PARAMS if name in given}
    text = given.get("text") or {}
    reasoning = given.get("reasoning") or {}
    wants_logprobs = "top_logprobs" in given or _LOGPROBS in given.get("include", [])
    renamed = {
        "max_tokens": given.get("max_output_tokens"),
        "reasoning_effort": reasoning.get("effort"),
        "top_logprobs": given.get("top_logprobs"),
        "logprobs": wants_logprobs or None,
        "response_format": _convert_text_format(text.get("format")),
    }
    fields |= _drop_nones(renamed) | _convert_tool_params(given)
    # A chat request has no field for it here, so it goes where model servers look for further fields.
    fields = add_extra_body(fields, _drop_nones({"verbosity": text.get("verbosity")}))
    fields["messages"] = _merge_instructions(given.get("instructions"), messages)
    return NeMoGymChatCompletionCreateParamsNonStreaming.model_construct(**fields)


def add_extra_body(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields` with `extra` in `metadata.extra_body`, under what is there already."""
    if not extra:
        return fields
    metadata = fields.get("metadata") or {}
    present = orjson.loads(metadata.get(EXTRA_BODY) or "{}")
    merged = orjson.dumps({**extra, **present}).decode()
    return {**fields, "metadata": {**metadata, EXTRA_BODY: merged}}


def _convert_text_format(text_format: Item | None) -> dict[str, Any] | None:
    if not text_format or text_format["type"] != "json_schema":
        return dict(text_format) if text_format else None
    schema = {name: value for name, value in text_format.items() if name != "type" and value is not None}
    return {"type": "json_schema", "json_schema": schema}


def _convert_tool_params(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the tools and the settings for their use, which endpoints refuse in a request without tools."""
    tools = given.get("tools") or []
    choice = given.get("tool_choice")
    if not tools:
        if choice == "required" or isinstance(choice, Mapping):
            raise ValueError(f"tool_choice {choice!r} asks for a tool call, but the request has no tools")
        return {}
    for tool in tools:
        if tool["type"] != "function":
            raise NotImplementedError(f"tool type {tool['type']!r} has no form in the Chat Completions API")
    names = ("name", "description", "parameters")
    functions = [{name: tool[name] for name in names if tool.get(name) is not None} for tool in tools]
    fields: dict[str, Any] = {"tools": [{"type": "function", "function": function} for function in functions]}
    if choice is not None:
        fields["tool_choice"] = choice if isinstance(choice, str) else _convert_tool_choice(choice)
    if "parallel_tool_calls" in given:
        fields["parallel_tool_calls"] = given["parallel_tool_calls"]
    return fields


def _convert_tool_choice(choice: Item) -> dict[str, Any]:
    match choice["type"]:
        case "function":
            return {"type": "function", "function": {"name": choice["name"]}}
        case "allowed_tools":
            tools = [{"type": "function", "function": {"name": tool["name"]}} for tool in choice["tools"]]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
        case kind:
            raise NotImplementedError(f"tool_choice {kind!r} has no form in the Chat Completions API")


def _merge_instructions(instructions: str | None, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make one system message of the instructions and the system or developer messages that open the conversation."""
    if not instructions:
        return messages
    texts = [instructions]
    used = 0
    for message in messages:
        text = join_text(message["content"]) if message["role"] in _INSTRUCTION_ROLES else None
        if text is None:
            break
        texts.append(text)
        used += 1
    return [{"role": "system", "content": "\n\n".join(texts)}, *messages[used:]]
