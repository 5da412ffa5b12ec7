# SPDX-License-Identifier: Apache-2.0
"""Anthropic Messages: the body of `POST /v1/messages`, that body as a Responses request, and a response as a message.

Fields that are not in the schema (caching hints, thinking budgets, service tiers …) are dropped, as they ask for what
no model server here offers. A content block or tool of an unknown kind is refused, because the model would miss it.

A failed tool result (`is_error`) keeps its text and becomes an output with status "incomplete". A thinking block's
signature travels as `encrypted_content`. Stop sequences and top_k go into `metadata.extra_body`. Token ids and
log-probs have no place in this dialect; they stay with the response they came from.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, Field

from nemo_gym._wire.converters.to_chat import add_extra_body
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming, build_function_tool
from nemo_gym._wire.schema.wire_model import WireModel, text_or_other, to_plain

NewId = Callable[[], str]
Item = dict[str, Any]
Json = Mapping[str, Any]

RAW_ARGUMENTS = "_raw_arguments"
"""The only key of a `tool_use` input whose arguments were not a JSON object: what the model really wrote."""


class TextBlock(WireModel):
    type: Literal["text"]
    text: str


class Base64Source(WireModel):
    type: Literal["base64"]
    media_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class URLSource(WireModel):
    type: Literal["url"]
    url: str


class PlainTextSource(WireModel):
    type: Literal["text"]
    data: str


class ImageBlock(WireModel):
    type: Literal["image"]
    source: Annotated[Base64Source | URLSource, Field(discriminator="type")]


class DocumentBlock(WireModel):
    type: Literal["document"]
    source: Annotated[Base64Source | URLSource | PlainTextSource, Field(discriminator="type")]
    title: str | None = None


class ToolUseBlock(WireModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ThinkingBlock(WireModel):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(WireModel):
    type: Literal["redacted_thinking"]
    data: str


VisibleBlock = TextBlock | ImageBlock | DocumentBlock


class ToolResultBlock(WireModel):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[str | list[Annotated[VisibleBlock, Field(discriminator="type")]] | None, text_or_other] = None
    is_error: bool = False


Block = Annotated[
    VisibleBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock, Field(discriminator="type")
]


class AnthropicMessage(WireModel):
    role: Literal["user", "assistant", "system"]
    content: Annotated[str | list[Block], text_or_other]


class AnthropicTool(WireModel):
    """A tool that the client runs."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None


class AnthropicToolChoice(WireModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class AnthropicMetadata(WireModel):
    user_id: str | None = None


class AnthropicOutputFormat(WireModel):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class AnthropicOutputConfig(WireModel):
    effort: str | None = None
    format: AnthropicOutputFormat | None = None


class AnthropicMessagesRequest(WireModel):
    messages: list[AnthropicMessage]
    model: str | None = None
    max_tokens: int | None = None
    metadata: AnthropicMetadata | None = None
    output_config: AnthropicOutputConfig | None = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    system: Annotated[str | list[TextBlock] | None, text_or_other] = None
    temperature: float | None = None
    tool_choice: AnthropicToolChoice | None = None
    tools: list[AnthropicTool] | None = None
    top_k: int | None = None
    top_p: float | None = None


def convert_request(request: AnthropicMessagesRequest, new_id: NewId) -> NeMoGymResponseCreateParamsNonStreaming:
    """Return the Responses request that asks for the same."""
    system = request.system or ""
    if not isinstance(system, str):
        system = "\n\n".join(block.text for block in system)
    fields = {
        "instructions": system or None,
        "max_output_tokens": request.max_tokens,
        "model": request.model,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "user": request.metadata.user_id if request.metadata else None,
        **_convert_output_config(request.output_config),
        **_convert_tools(request.tools or [], request.tool_choice),
    }
    given = {name: value for name, value in fields.items() if value is not None}
    sampling = {"stop": request.stop_sequences or None, "top_k": request.top_k}
    given = add_extra_body(given, {name: value for name, value in sampling.items() if value is not None})
    items = [item for message in request.messages for item in _convert_message(message, new_id)]
    return NeMoGymResponseCreateParamsNonStreaming.model_validate({**given, "input": items})


def _convert_output_config(config: AnthropicOutputConfig | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if config and config.effort:
        fields["reasoning"] = {"effort": config.effort}
    if config and config.format:
        schema = {"type": "json_schema", "name": "output", "schema": config.format.json_schema, "strict": True}
        fields["text"] = {"format": schema}
    return fields


def _convert_tools(tools: list[AnthropicTool], choice: AnthropicToolChoice | None) -> dict[str, Any]:
    if not tools:
        return {}
    fields: dict[str, Any] = {
        "tools": [
            build_function_tool(
                tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
            )
            for tool in tools
        ]
    }
    if choice is not None:
        named = {"type": "function", "name": choice.name}
        fields["tool_choice"] = {"auto": "auto", "any": "required", "none": "none", "tool": named}[choice.type]
        fields["parallel_tool_calls"] = False if choice.disable_parallel_tool_use else None
    return fields


def _convert_message(message: AnthropicMessage, new_id: NewId) -> Iterator[Item]:
    """Yield the items of a message, in its order; text and images that stand together stay in one."""
    if isinstance(message.content, str):
        yield {"type": "message", "role": message.role, "content": message.content}
        return
    visible: list[VisibleBlock] = []
    for block in message.content:
        if isinstance(block, TextBlock | ImageBlock | DocumentBlock):
            visible.append(block)
            continue
        if visible:
            yield _join_visible(message.role, visible)
            visible = []
        yield _convert_block(block, new_id)
    if visible:
        yield _join_visible(message.role, visible)


def _join_visible(role: str, blocks: list[VisibleBlock]) -> Item:
    parts = [_convert_visible(block) for block in blocks]
    if role != "assistant":
        return {"type": "message", "role": role, "content": parts}
    # Of what an assistant shows only text can be said in either dialect.
    if others := [block.type for block in blocks if not isinstance(block, TextBlock)]:
        raise NotImplementedError(f"a content block {others[0]!r} of an assistant has no form in the Responses API")
    return {"type": "message", "role": role, "content": "".join(part["text"] for part in parts)}


def _convert_visible(block: VisibleBlock) -> Item:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    source = block.source
    if isinstance(source, PlainTextSource):
        return {"type": "input_text", "text": source.data}
    if isinstance(block, ImageBlock):
        return {"type": "input_image", "image_url": source.url, "detail": "auto"}
    if isinstance(source, Base64Source):
        return {"type": "input_file", "file_data": source.url, "filename": block.title or "document"}
    return {"type": "input_file", "file_url": source.url}


def _convert_block(block: Block, new_id: NewId) -> Item:
    match block:
        case ToolUseBlock():
            is_raw = list(block.input) == [RAW_ARGUMENTS]
            arguments = str(block.input[RAW_ARGUMENTS]) if is_raw else orjson.dumps(block.input).decode()
            return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
        case ToolResultBlock():
            content = block.content or ""
            output = content if isinstance(content, str) else [_convert_visible(one) for one in content]
            failed = {"status": "incomplete"} if block.is_error else {}
            return {"type": "function_call_output", "call_id": block.tool_use_id, "output": output, **failed}
        case ThinkingBlock():
            summary = [{"type": "summary_text", "text": block.thinking}]
            encrypted = block.signature or None
        case RedactedThinkingBlock():
            summary = []
            encrypted = block.data
        case _:
            raise NotImplementedError(f"a content block {block.type!r} has no form in the Responses API")
    return {"type": "reasoning", "id": f"rs_{new_id()}", "summary": summary, "encrypted_content": encrypted}


def convert_response(response: BaseModel | Json, model: str | None = None) -> dict[str, Any]:
    """Return the message of Anthropic's non-streaming API; `model` is the name that the client asked for."""
    body = to_plain(response)
    content = [block for item in body["output"] for block in _build_blocks(item)]
    return {
        "id": f"msg_{body['id'].removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "model": model or body["model"],
        "content": content,
        "stop_reason": _find_stop_reason(body, content),
        "stop_sequence": body.get("stop_sequence"),
        "usage": _convert_usage(body.get("usage")),
    }


def _build_blocks(item: Json) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "reasoning":
            # One block per thought; the signature closes the last. What cannot be read is a redacted block.
            thoughts = [thought["text"] for thought in item["summary"] or item.get("content") or []]
            encrypted = item.get("encrypted_content") or ""
            for number, thought in enumerate(thoughts, 1):
                signature = encrypted if number == len(thoughts) else ""
                yield {"type": "thinking", "thinking": thought, "signature": signature}
            if encrypted and not thoughts:
                yield {"type": "redacted_thinking", "data": encrypted}
        case "message":
            texts = [part.get("text") or part.get("refusal") for part in _list_parts(item)]
            yield from ({"type": "text", "text": text} for text in texts if text)
        case "function_call":
            arguments = _parse_arguments(item["arguments"])
            yield {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": arguments}
        case kind:
            raise NotImplementedError(f"an output item of type {kind!r} has no form in the Anthropic Messages API")


def _list_parts(message: Json) -> list[Json]:
    content = message["content"]
    return [{"text": content}] if isinstance(content, str) else content


def _parse_arguments(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object. Malformed arguments are kept as the model wrote them: the tool refuses them,
    and the model can correct itself, because its history holds its own words.
    """
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {RAW_ARGUMENTS: arguments}


def _find_stop_reason(body: Json, content: list[dict[str, Any]]) -> str:
    reason = (body.get("incomplete_details") or {}).get("reason")
    if reason == "max_output_tokens":
        return "max_tokens"
    messages = [item for item in body["output"] if item["type"] == "message"]
    if reason == "content_filter" or any("refusal" in part for item in messages for part in _list_parts(item)):
        return "refusal"
    if any(block["type"] == "tool_use" for block in content):
        return "tool_use"
    return "stop_sequence" if body.get("stop_sequence") else "end_turn"


def _convert_usage(usage: Json | None) -> dict[str, int]:
    """Count input tokens read from or written to a cache separately, as Anthropic does.

    Its schema cannot say "unknown", so that is 0 here.
    """
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    details = usage.get("input_tokens_details") or {}
    read = details.get("cached_tokens") or 0
    written = details.get("cache_write_tokens") or 0
    return {
        "input_tokens": usage["input_tokens"] - read - written,
        "output_tokens": usage["output_tokens"],
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
