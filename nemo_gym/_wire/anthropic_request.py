# SPDX-License-Identifier: Apache-2.0
"""An Anthropic Messages request as a Responses request.

A failed tool result (`is_error`) keeps its text and becomes an output with status "incomplete". A thinking block's
signature travels as `encrypted_content`. Stop sequences and top_k go into `metadata.extra_body`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from nemo_gym._wire.anthropic import (
    AnthropicMessage,
    AnthropicMessagesRequest,
    AnthropicOutputConfig,
    AnthropicTool,
    AnthropicToolChoice,
    Base64Source,
    Block,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    RedactedThinkingBlock,
    ShownBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from nemo_gym._wire.convert_to_chat import with_extra_body
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming

NewId = Callable[[], str]
Item = dict[str, Any]

RAW_ARGUMENTS = "_raw_arguments"
"""The only key of a `tool_use` input whose arguments were not a JSON object: what the model really wrote."""


def to_responses(request: AnthropicMessagesRequest, new_id: NewId) -> NeMoGymResponseCreateParamsNonStreaming:
    fields = {
        "instructions": _system(request.system),
        "max_output_tokens": request.max_tokens,
        "model": request.model,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "user": request.metadata.user_id if request.metadata else None,
        **_output(request.output_config),
        **_tools(request.tools or [], request.tool_choice),
    }
    given = {name: value for name, value in fields.items() if value is not None}
    sampling = {"stop": request.stop_sequences or None, "top_k": request.top_k}
    given = with_extra_body(given, {name: value for name, value in sampling.items() if value is not None})
    items = [item for message in request.messages for item in _items(message, new_id)]
    return NeMoGymResponseCreateParamsNonStreaming.model_validate({**given, "input": items})


def _system(system: str | list[TextBlock] | None) -> str | None:
    if system is None or isinstance(system, str):
        return system or None
    return "\n\n".join(block.text for block in system) or None


def _output(config: AnthropicOutputConfig | None) -> dict[str, Any]:
    if config is None:
        return {}
    fields: dict[str, Any] = {}
    if config.effort:
        fields["reasoning"] = {"effort": config.effort}
    if config.format:
        schema = {"type": "json_schema", "name": "output", "schema": config.format.json_schema, "strict": True}
        fields["text"] = {"format": schema}
    return fields


def _tools(tools: list[AnthropicTool], choice: AnthropicToolChoice | None) -> dict[str, Any]:
    if not tools:
        return {}
    fields: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    if choice is not None:
        named = {"type": "function", "name": choice.name}
        fields["tool_choice"] = {"auto": "auto", "any": "required", "none": "none", "tool": named}[choice.type]
        fields["parallel_tool_calls"] = False if choice.disable_parallel_tool_use else None
    return fields


def _tool(tool: AnthropicTool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description is not None else {}
    return {
        "type": "function",
        "name": tool.name,
        **described,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }


def _items(message: AnthropicMessage, new_id: NewId) -> Iterator[Item]:
    """The items of a message, in its order; text and images that stand together stay in one."""
    if isinstance(message.content, str):
        yield _message(message.role, message.content)
        return
    shown: list[ShownBlock] = []
    for block in message.content:
        if isinstance(block, TextBlock | ImageBlock | DocumentBlock):
            shown.append(block)
            continue
        if shown:
            yield _shown(message.role, shown)
            shown = []
        yield _special(block, new_id)
    if shown:
        yield _shown(message.role, shown)


def _shown(role: str, blocks: list[ShownBlock]) -> Item:
    if role == "assistant":
        # Of what an assistant shows only text can be said in either dialect.
        return _message(role, "".join(_text(block) for block in blocks))
    return _message(role, _parts(blocks))


def _text(block: ShownBlock) -> str:
    if isinstance(block, TextBlock):
        return block.text
    raise NotImplementedError(f"a content block {block.type!r} of an assistant has no form in the Responses API")


def _message(role: str, content: str | list[Item]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _parts(blocks: Iterable[ShownBlock]) -> list[Item]:
    return [_part(block) for block in blocks]


def _part(block: ShownBlock) -> Item:
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


def _special(block: Block, new_id: NewId) -> Item:
    match block:
        case ToolUseBlock():
            arguments = _arguments(block.input)
            return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
        case ToolResultBlock():
            return _tool_result(block)
        case ThinkingBlock():
            summary = [{"type": "summary_text", "text": block.thinking}]
            return _reasoning(new_id, summary, block.signature or None)
        case RedactedThinkingBlock():
            return _reasoning(new_id, [], block.data)
        case _:
            raise NotImplementedError(f"a content block {block.type!r} has no form in the Responses API")


def _reasoning(new_id: NewId, summary: list[Item], encrypted: str | None) -> Item:
    return {"type": "reasoning", "id": f"rs_{new_id()}", "summary": summary, "encrypted_content": encrypted}


def _tool_result(block: ToolResultBlock) -> Item:
    content = block.content or ""
    output = content if isinstance(content, str) else _parts(content)
    failed = {"status": "incomplete"} if block.is_error else {}
    return {"type": "function_call_output", "call_id": block.tool_use_id, "output": output, **failed}


def _arguments(tool_input: dict[str, Any]) -> str:
    if list(tool_input) == [RAW_ARGUMENTS]:
        return str(tool_input[RAW_ARGUMENTS])
    return orjson.dumps(tool_input).decode()
