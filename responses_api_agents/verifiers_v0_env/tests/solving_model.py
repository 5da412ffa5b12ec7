# SPDX-License-Identifier: Apache-2.0
"""A model that plays the sample environments, well or badly: what it says depends on the conversation alone."""

import hashlib
import json
import re
from typing import Any

from nemo_gym.base_responses_api_model import Body
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymChatCompletionCreateParamsNonStreaming
from tests.support.chat_models import ChatModel, chat_reply

PRICES = {"apple": 3, "bread": 5, "cheese": 8, "dates": 4, "eggs": 6}


class SolvingModel(ChatModel):
    """Answers chat completions."""

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        messages = [dict(message) for message in body.model_dump(mode="json")["messages"]]
        return chat_reply(**{"content": None, **answer(messages)})


def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that follows."""
    asked = next(_read_text(message) for message in messages if message["role"] == "user")
    luck = int(hashlib.sha256(asked.encode()).hexdigest(), 16)
    if asked.startswith("Guess"):
        return {"content": _guess(messages)}
    if asked.startswith("What do"):
        return _shop(messages, asked, luck)
    words = asked.split()
    return {"content": (" ".join(reversed(words)), " ".join(words), "no idea")[luck % 3]}


def _guess(messages: list[dict[str, Any]]) -> str:
    low, high, guess = 1, 30, 15
    for message in messages[1:]:
        text = _read_text(message).strip()
        if message["role"] == "assistant":
            guess = int(text)
        elif text == "higher":
            low = guess + 1
        elif text == "lower":
            high = guess - 1
    return str((low + high) // 2)


def _shop(messages: list[dict[str, Any]], asked: str, luck: int) -> dict[str, Any]:
    items = re.findall("|".join(PRICES), asked)
    told = [message for message in messages if message["role"] == "tool"]
    if told:
        total = sum(int(text) for message in told if (text := _read_text(message)).isdigit())
        return {"content": str(total + (luck % 5 == 0))}
    if luck % 7 == 0:
        items = [*items[:1], "no such thing"]
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "look_up_price", "arguments": json.dumps({"item": i})},
        }
        for n, i in enumerate(items)
    ]
    return {"tool_calls": calls}


def _read_text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
