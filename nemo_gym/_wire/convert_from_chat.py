# SPDX-License-Identifier: Apache-2.0
"""Chat Completions in the Responses dialect: messages become items, a completion becomes a response.

Lost on the way, because the Responses API has no place for it: names of participants, choices after the first, and
log-probs of a choice (token ids and log-probs for training do travel). Custom tool calls and the deprecated
`function_call` are errors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym._wire import convert_parts
from nemo_gym._wire.answers import explain_unanswered_completion
from nemo_gym._wire.convert_plain import field, plain
from nemo_gym._wire.errors import InvalidModelReply
from nemo_gym._wire.items import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
    NeMoGymSummary,
    training_variant_of,
)
from nemo_gym._wire.parts import NeMoGymContent, NeMoGymResponseOutputRefusal, NeMoGymResponseOutputText
from nemo_gym._wire.response import NeMoGymResponse
from nemo_gym._wire.tokens import missing_token_fields, token_fields_of
from nemo_gym._wire.usage import NeMoGymResponseUsage

Message = Mapping[str, Any]
NewId = Callable[[], str]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = (
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "service_tier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)


def message_text(message: Message) -> tuple[str, str]:
    """Text and refusal of an assistant message."""
    content, refusal = message.get("content") or "", message.get("refusal") or ""
    if isinstance(content, str):
        return content, refusal
    refusals = [part["refusal"] for part in content if part["type"] == "refusal"]
    if others := [part["type"] for part in content if part["type"] not in ("text", "output_text", "refusal")]:
        raise NotImplementedError(f"content part {others[0]!r} of an assistant has no form in the Responses API")
    return "".join(part.get("text", "") for part in content), refusal + "".join(refusals)


def reasoning_field(message: Message) -> list[str]:
    """The reasoning that a server sent in a field of its own (two names are in use)."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return [reasoning] if isinstance(reasoning, str) and reasoning else []


def assistant_items(
    message: Message, thoughts: Sequence[str], text: str, refusal: str, new_id: NewId
) -> list[BaseModel]:
    """Reasoning, message and calls, in this order. A message with nothing in it is still one: the model replied."""
    items: list[BaseModel] = []
    calls = function_calls(message)
    if thoughts:
        summary = [NeMoGymSummary(text=thought, type="summary_text") for thought in thoughts]
        items.append(NeMoGymResponseReasoningItem(id=f"rs_{new_id()}", summary=summary, type="reasoning"))
    if text or refusal or not (thoughts or calls):
        items.append(_output_message(text, refusal, new_id))
    return items + calls


def _output_message(text: str, refusal: str, new_id: NewId) -> NeMoGymResponseOutputMessage:
    content: list[NeMoGymContent] = []
    if text or not refusal:
        content.append(NeMoGymResponseOutputText(text=text, annotations=[], type="output_text"))
    if refusal:
        content.append(NeMoGymResponseOutputRefusal(refusal=refusal, type="refusal"))
    return NeMoGymResponseOutputMessage(
        id=f"msg_{new_id()}", content=content, role="assistant", status="completed", type="message"
    )


def function_calls(message: Message) -> list[BaseModel]:
    if message.get("function_call"):
        raise NotImplementedError("the deprecated `function_call` of a chat message is not supported; use `tool_calls`")
    return [_function_call(call) for call in message.get("tool_calls") or []]


def _function_call(call: Message) -> BaseModel:
    if "function" not in call:
        raise NotImplementedError(f"a chat tool call of type {call.get('type')!r} has no supported Responses item")
    function = call["function"]
    return NeMoGymResponseFunctionToolCall(
        arguments=function["arguments"],
        call_id=call["id"],
        name=function["name"],
        type="function_call",
        id=call["id"],
        status="completed",
    )


def with_tokens(items: list[BaseModel], message: Message) -> list[BaseModel]:
    """`items` with the token ids of `message` on the last of them, by reference."""
    tokens = token_fields_of(message)
    if not tokens:
        return items
    if missing := missing_token_fields(tokens):
        raise ValueError(f"token metadata must come complete: {', '.join(missing)} missing beside {', '.join(tokens)}")
    last = items[-1]
    twin = training_variant_of(type(last))
    fields = {name: value for name, value in last if name in last.model_fields_set}
    return [*items[:-1], twin.model_construct(**fields, **tokens)]


def other_item(message: Message) -> BaseModel:
    """The item of a message that is not the assistant's."""
    role, content = message["role"], message.get("content")
    if content is None:
        content = ""
    if role == "tool":
        output = convert_parts.content_from_chat(content)
        return NeMoGymFunctionCallOutput.model_validate(
            {"call_id": message["tool_call_id"], "output": output, "type": "function_call_output"}
        )
    if role in ("user", "system", "developer"):
        parts = convert_parts.content_from_chat(content)
        return NeMoGymEasyInputMessage.model_validate({"role": role, "content": parts, "type": "message"})
    raise NotImplementedError(f"a chat message with role {role!r} has no form in the Responses API")


def first_choice(completion: BaseModel | Mapping[str, Any]) -> Any:
    """Return the choice that is the reply; InvalidModelReply if the completion is no answer."""
    reason = explain_unanswered_completion(completion)
    if reason is None:
        return field(completion, "choices")[0]
    raise InvalidModelReply(
        f"the model endpoint sent a chat completion that is no answer: {reason}.\n"
        "hint: the endpoint failed or refused while reporting success; its log says why",
        orjson.dumps(plain(completion), default=repr).decode()[:2000],
    )


def response(
    params: BaseModel,
    completion: BaseModel | Mapping[str, Any],
    output: list[BaseModel],
    response_id: str,
    created_at: float,
) -> NeMoGymResponse:
    """The response with `output`: an echo of the request, and how and at what cost the completion ended."""
    choice, asked = first_choice(completion), dict(params)
    reason = _INCOMPLETE.get(field(choice, "finish_reason") or "")
    echo = {name: plain(asked[name]) for name in _ECHOED if asked.get(name) is not None}
    # vLLM says which of the request's stop strings ended the reply; Anthropic clients ask for it.
    stopped_by = field(choice, "stop_reason")
    extra = {"stop_sequence": stopped_by} if isinstance(stopped_by, str) else {}
    return NeMoGymResponse(
        **echo,
        **extra,
        id=response_id,
        created_at=created_at,
        model=asked.get("model") or field(completion, "model") or "",
        object="response",
        output=output,
        status="incomplete" if reason else "completed",
        incomplete_details={"reason": reason} if reason else None,
        error=None,
        usage=usage(plain(field(completion, "usage"))),
    )


def usage(chat_usage: Mapping[str, Any] | None) -> NeMoGymResponseUsage | None:
    """Token counts under their Responses names; a detail that the endpoint did not report is unknown, not zero."""
    if chat_usage is None:
        return None
    return NeMoGymResponseUsage.model_validate(
        {
            "input_tokens": chat_usage["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": usage_detail(
                    chat_usage,
                    "prompt_tokens_details",
                    "cached_tokens",
                    "cached_input_tokens",
                    "cache_read_input_tokens",
                )
            },
            "output_tokens": chat_usage["completion_tokens"],
            "output_tokens_details": {
                "reasoning_tokens": usage_detail(
                    chat_usage, "completion_tokens_details", "reasoning_tokens", "reasoning_output_tokens"
                )
            },
            "total_tokens": chat_usage["total_tokens"],
        }
    )


def usage_detail(usage: Any, group: str, name: str, *aliases: str) -> int | None:
    """Return the count `name` in the `group` of a usage object, else the first alias that stands in the usage itself.

    None if the endpoint did not report it.
    """
    counts = (field(field(usage, group), name), *(field(usage, alias) for alias in aliases))
    return next((count for count in counts if isinstance(count, int)), None)
