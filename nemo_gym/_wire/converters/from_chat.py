# SPDX-License-Identifier: Apache-2.0
"""Chat Completions in the Responses dialect: messages become items, a completion becomes a response.

Lost on the way, because the Responses API has no place for it: names of participants, choices after the first, and
log-probs of a choice (token ids and log-probs for training do travel). Custom tool calls and the deprecated
`function_call` are errors.

Of a request, sampling parameters that the Responses API has no field for (stop, seed, penalties …) go where this
framework keeps them: the JSON string `metadata.extra_body`, from which model servers take them again. Lost are
`modalities`, `audio`, `prediction`, `web_search_options` and the deprecated function parameters, which no model server
here supports.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym._wire.converters.to_chat import SAME_PARAMS, add_extra_body, describe_part
from nemo_gym._wire.schema.format_errors import InvalidModelReply, explain_unanswered_completion
from nemo_gym._wire.schema.items import (
    NeMoGymContent,
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymResponseReasoningItem,
    NeMoGymSummary,
    training_variant_of,
)
from nemo_gym._wire.schema.replies import NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming, build_function_tool
from nemo_gym._wire.schema.tokens import NeMoGymResponseUsage, list_missing_token_fields, pick_token_fields
from nemo_gym._wire.schema.wire_model import get_field, to_plain

Message = Mapping[str, Any]
NewId = Callable[[], str]

_SAMPLING = ("frequency_penalty", "logit_bias", "presence_penalty", "seed", "stop")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = tuple(
    name
    for name in NeMoGymResponseCreateParamsNonStreaming.model_fields
    if name in NeMoGymResponse.model_fields and name != "model"
)


def read_text(message: Message) -> tuple[str, str]:
    """Return the text and the refusal of an assistant message."""
    content = message.get("content") or ""
    refusal = message.get("refusal") or ""
    if isinstance(content, str):
        return content, refusal
    refusals = [part["refusal"] for part in content if part["type"] == "refusal"]
    if others := [part["type"] for part in content if part["type"] not in ("text", "output_text", "refusal")]:
        raise NotImplementedError(f"content part {others[0]!r} of an assistant has no form in the Responses API")
    return "".join(part.get("text", "") for part in content), refusal + "".join(refusals)


def build_assistant_items(
    message: Message, thoughts: Sequence[str], text: str, refusal: str, new_id: NewId
) -> list[BaseModel]:
    """Return reasoning, message and calls, in this order.

    A message with nothing in it still counts: the model replied.
    """
    items: list[BaseModel] = []
    calls = _build_function_calls(message)
    if thoughts:
        summary = [NeMoGymSummary(text=thought, type="summary_text") for thought in thoughts]
        items.append(NeMoGymResponseReasoningItem(id=f"rs_{new_id()}", summary=summary, type="reasoning"))
    if text or refusal or not (thoughts or calls):
        content: list[NeMoGymContent] = []
        if text or not refusal:
            content.append(NeMoGymResponseOutputText(text=text, annotations=[], type="output_text"))
        if refusal:
            content.append(NeMoGymResponseOutputRefusal(refusal=refusal, type="refusal"))
        items.append(
            NeMoGymResponseOutputMessage(
                id=f"msg_{new_id()}", content=content, role="assistant", status="completed", type="message"
            )
        )
    return items + calls


def _build_function_calls(message: Message) -> list[BaseModel]:
    if message.get("function_call"):
        raise NotImplementedError("the deprecated `function_call` of a chat message is not supported; use `tool_calls`")
    items: list[BaseModel] = []
    for call in message.get("tool_calls") or []:
        if "function" not in call:
            raise NotImplementedError(f"a chat tool call of type {call.get('type')!r} has no supported Responses item")
        function = call["function"]
        items.append(
            NeMoGymResponseFunctionToolCall(
                arguments=function["arguments"],
                call_id=call["id"],
                name=function["name"],
                type="function_call",
                id=call["id"],
                status="completed",
            )
        )
    return items


def attach_tokens(items: list[BaseModel], message: Message) -> list[BaseModel]:
    """Return `items` with the token ids of `message` on the last of them, by reference."""
    tokens = pick_token_fields(message)
    if not tokens:
        return items
    if missing := list_missing_token_fields(tokens):
        raise ValueError(f"token metadata must come complete: {', '.join(missing)} missing beside {', '.join(tokens)}")
    last = items[-1]
    twin = training_variant_of(type(last))
    fields = {name: value for name, value in last if name in last.model_fields_set}
    return [*items[:-1], twin.model_construct(**fields, **tokens)]


def build_client_item(message: Message) -> BaseModel:
    """Return the item for a message that does not come from the assistant."""
    role = message["role"]
    content = message.get("content")
    if content is None:
        content = ""
    if role == "tool":
        output = _convert_content(content)
        return NeMoGymFunctionCallOutput.model_validate(
            {"call_id": message["tool_call_id"], "output": output, "type": "function_call_output"}
        )
    if role in ("user", "system", "developer"):
        parts = _convert_content(content)
        return NeMoGymEasyInputMessage.model_validate({"role": role, "content": parts, "type": "message"})
    raise NotImplementedError(f"a chat message with role {role!r} has no form in the Responses API")


def _convert_content(content: str | Iterable[Message]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [convert_chat_part(part) for part in content]


def convert_chat_part(part: Message) -> dict[str, Any]:
    """Convert a chat part to an input part of the Responses API; one that already has its shape passes unchanged."""
    match part["type"]:
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
        case "video_url":
            return {"type": "input_video", "video_url": part["video_url"]["url"]}
        case "file":
            return {"type": "input_file", **part["file"]}
        case kind if kind.startswith("input_"):
            return dict(part)
        case kind:
            raise NotImplementedError(f"content part {kind!r} has no form in the Responses API: {describe_part(part)}")


def pick_choice(completion: BaseModel | Mapping[str, Any]) -> Any:
    """Return the choice that is the reply; InvalidModelReply if the completion contains no answer."""
    reason = explain_unanswered_completion(completion)
    if reason is None:
        return get_field(completion, "choices")[0]
    raise InvalidModelReply(
        f"the model endpoint sent a chat completion that contains no answer: {reason}.\n"
        "hint: the endpoint failed or refused but reported success; look at its log",
        orjson.dumps(to_plain(completion), default=repr).decode()[:2000],
    )


def build_response(
    params: BaseModel,
    completion: BaseModel | Mapping[str, Any],
    output: list[BaseModel],
    response_id: str,
    created_at: float,
) -> NeMoGymResponse:
    """Return the response with `output`: an echo of the request, and how and at what cost the completion ended."""
    choice = pick_choice(completion)
    asked = dict(params)
    reason = _INCOMPLETE.get(get_field(choice, "finish_reason") or "")
    echo = {name: to_plain(asked[name]) for name in _ECHOED if asked.get(name) is not None}
    # vLLM says which of the request's stop strings ended the reply; Anthropic clients ask for it.
    stopped_by = get_field(choice, "stop_reason")
    extra = {"stop_sequence": stopped_by} if isinstance(stopped_by, str) else {}
    return NeMoGymResponse(
        **echo,
        **extra,
        id=response_id,
        created_at=created_at,
        model=asked.get("model") or get_field(completion, "model") or "",
        object="response",
        output=output,
        status="incomplete" if reason else "completed",
        incomplete_details={"reason": reason} if reason else None,
        error=None,
        usage=convert_usage(to_plain(get_field(completion, "usage"))),
    )


def convert_usage(chat_usage: Mapping[str, Any] | None) -> NeMoGymResponseUsage | None:
    """Give token counts their Responses names; a detail that the endpoint did not report is 0."""
    if chat_usage is None:
        return None
    return NeMoGymResponseUsage.model_validate(
        {
            "input_tokens": chat_usage["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": read_usage_detail(
                    chat_usage,
                    "prompt_tokens_details",
                    "cached_tokens",
                    "cached_input_tokens",
                    "cache_read_input_tokens",
                ),
                "cache_write_tokens": read_usage_detail(
                    chat_usage, "prompt_tokens_details", "cache_write_tokens", "cache_creation_input_tokens"
                ),
            },
            "output_tokens": chat_usage["completion_tokens"],
            "output_tokens_details": {
                "reasoning_tokens": read_usage_detail(
                    chat_usage, "completion_tokens_details", "reasoning_tokens", "reasoning_output_tokens"
                )
            },
            "total_tokens": chat_usage["total_tokens"],
        }
    )


def read_usage_detail(usage: Any, group: str, name: str, *aliases: str) -> int | None:
    """Return the count `name` in the `group` of a usage object, else the first alias that stands in the usage itself.

    None if the endpoint did not report it.
    """
    counts = (get_field(get_field(usage, group), name), *(get_field(usage, alias) for alias in aliases))
    return next((count for count in counts if isinstance(count, int)), None)


def convert_chat_params(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything of the request `chat` but its messages, as fields of a Responses request."""
    if chat.get("n") not in (None, 1):
        raise NotImplementedError(f"a response holds one choice, but the chat request asks for n={chat['n']!r}")
    given = {name: value for name, value in chat.items() if value is not None}
    fields = {name: given[name] for name in SAME_PARAMS if name in given}
    text_format = given.get("response_format")
    if text_format and text_format["type"] == "json_schema":
        text_format = {"type": "json_schema", **text_format["json_schema"]}
    renamed = {
        "max_output_tokens": given.get("max_completion_tokens", given.get("max_tokens")),
        "reasoning": {"effort": given["reasoning_effort"]} if "reasoning_effort" in given else None,
        "top_logprobs": given.get("top_logprobs"),
        "include": ["message.output_text.logprobs"] if given.get("logprobs") else None,
        "text": {"format": dict(text_format)} if text_format else None,
        "tools": [_convert_tool(tool) for tool in given["tools"]] if given.get("tools") else None,
        "tool_choice": _convert_tool_choice(given["tool_choice"]) if "tool_choice" in given else None,
        "parallel_tool_calls": given.get("parallel_tool_calls"),
    }
    fields |= {name: value for name, value in renamed.items() if value is not None}
    return add_extra_body(fields, {name: given[name] for name in _SAMPLING if name in given})


def _convert_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        raise NotImplementedError(f"chat tool type {tool['type']!r} is not supported; only functions are")
    function = tool["function"]
    settings = {name: function.get(name) for name in ("description", "parameters", "strict")}
    return build_function_tool(function["name"], **settings)


def _convert_tool_choice(choice: str | Mapping[str, Any]) -> Any:
    if isinstance(choice, str):
        return choice
    match choice["type"]:
        case "function":
            return {"type": "function", "name": choice["function"]["name"]}
        case "allowed_tools":
            allowed = choice["allowed_tools"]
            tools = [{"type": "function", "name": tool["function"]["name"]} for tool in allowed["tools"]]
            return {"type": "allowed_tools", "mode": allowed["mode"], "tools": tools}
        case kind:
            raise NotImplementedError(f"chat tool_choice {kind!r} is not supported; only functions are")
