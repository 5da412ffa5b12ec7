# SPDX-License-Identifier: Apache-2.0
"""Replies of models that speak Chat Completions."""

from typing import Any

from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)


class ChatModel(SimpleResponsesAPIModel):
    """A model for libraries that ask for nothing but chat completions."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        raise AssertionError("the library speaks Chat Completions")


def chat_reply(content: str | None, **fields: Any) -> NeMoGymChatCompletion:
    """A completion with one choice: an assistant's message of this content and these further fields."""
    return NeMoGymChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls" if fields.get("tool_calls") else "stop",
                    "message": {"role": "assistant", "content": content, **fields},
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )
