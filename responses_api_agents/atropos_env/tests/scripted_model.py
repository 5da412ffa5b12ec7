# SPDX-License-Identifier: Apache-2.0
"""A model that plays the sample environments, well or badly, always in the same way."""

import hashlib
import re
from collections import Counter
from typing import Any

from fastapi import HTTPException
from pydantic import PrivateAttr

from nemo_gym.base_responses_api_model import Body
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymChatCompletionCreateParamsNonStreaming
from tests.support.chat_models import ChatModel, chat_reply


class ScriptedModel(ChatModel):
    """Answers by the conversation; one that it is asked for again, as by a group, by the number of times."""

    _asked: Counter[str] = PrivateAttr(default_factory=Counter)
    _bodies: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        self._bodies.append(body.model_dump(mode="json", exclude_unset=True))
        texts = [str(message["content"]) for message in self._bodies[-1]["messages"]]
        if "break" in texts[0]:
            raise HTTPException(503, "the engine is down")
        conversation = "\n".join(texts)
        said = answer(texts, self._asked[conversation])
        self._asked[conversation] += 1
        return chat_reply(said)


def answer(texts: list[str], times: int) -> str:
    """Return what follows a conversation that was answered so many times before."""
    luck = int(hashlib.sha256(texts[0].encode() + texts[-1].encode()).hexdigest(), 16)
    if texts[0].startswith("Guess"):
        return _guess(texts)
    if texts[0].startswith("Name"):
        letters = "".join(re.findall(r" (\w)\b", texts[0]))
        return letters if luck % 5 == 0 else letters * (1 + (times + luck) % 4) if times % 4 else "?"
    if found := re.search(r"(\d+) \+ (\d+)", texts[-1]):
        return str(sum(map(int, found.groups())) + luck % 4) if luck % 3 else "no idea"
    return f"heard {len(texts)}"


def _guess(texts: list[str]) -> str:
    """Halve what is left, but never say the last number that is."""
    low, high, guess = 1, 30, 15
    for place, text in enumerate(texts[1:]):
        if place % 2 == 0:
            guess = int(text) if text.isdecimal() else guess
        elif text == "higher":
            low = guess + 1
        elif text == "lower":
            high = guess - 1
    return "hm" if low == high else str((low + high) // 2)
