# SPDX-License-Identifier: Apache-2.0
"""A response in the Chat Completions dialect, for clients that ask the replay in that one."""

from typing import Any

from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseUsage,
)
from nemo_gym.responses_converter import ResponsesConverter

_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def as_chat_completion(response: NeMoGymResponse) -> NeMoGymChatCompletion:
    """The chat completion that says the same as `response`."""
    message = _message(response)
    choice = {"index": 0, "finish_reason": _finish_reason(response, message), "message": message}
    return NeMoGymChatCompletion.model_validate(
        {
            "id": response.id,
            "object": "chat.completion",
            "created": int(response.created_at),
            "model": response.model,
            "choices": [choice],
            "usage": None if response.usage is None else _usage(response.usage),
        }
    )


def _message(response: NeMoGymResponse) -> dict[str, Any]:
    params = NeMoGymResponseCreateParamsNonStreaming.model_construct(input=response.output)
    for with_tokens in (True, False):  # the tokens of several model calls do not fit on one message
        converter = ResponsesConverter(return_token_id_information=with_tokens)
        messages = converter.responses_to_chat_completion_create_params(params).messages
        if len(messages) == 1:
            break
    return dict(messages[0])


def _finish_reason(response: NeMoGymResponse, message: dict[str, Any]) -> str:
    reason = response.incomplete_details.reason if response.incomplete_details else None
    return _FINISH_REASONS.get(reason or "", "tool_calls" if message.get("tool_calls") else "stop")


def _usage(usage: NeMoGymResponseUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
        "completion_tokens": usage.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": usage.output_tokens_details.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
