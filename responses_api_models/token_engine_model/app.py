# SPDX-License-Identifier: Apache-2.0
"""A model server in front of a trainer's own engine, which takes token ids and returns token ids.

The trainer opens a rollout with its engine (`nemo_gym.token_engine`), and the calls of that rollout are answered by it,
with the exact ids and log-probs on every reply. It runs inside the trainer's process and nowhere else.
"""

from time import time
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from pydantic import PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.rollout_correlation import RolloutPathMiddleware, current_rollout_id
from nemo_gym.token_engine import TokenAnswer, find_token_session

_BAD_REQUEST = 400


class TokenEngineModelConfig(BaseResponsesAPIModelConfig):
    """Config of a trainer's engine. The engine itself comes with each rollout."""


class TokenEngineModel(SimpleResponsesAPIModel):
    """Answers with the engine of the rollout that a call belongs to."""

    is_chat_only = True

    config: TokenEngineModelConfig
    _converter: ResponsesConverter = PrivateAttr(
        default_factory=lambda: ResponsesConverter(return_token_id_information=True)
    )

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.add_middleware(RolloutPathMiddleware)
        return app

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        try:
            params = self._converter.responses_to_chat_completion_create_params(body)
        except (NotImplementedError, ValueError) as error:
            raise HTTPException(_BAD_REQUEST, str(error)) from error
        return self._converter.chat_completion_to_response(body, await self.chat_completions(params))

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        session = find_token_session(current_rollout_id())
        asked = {name: value for name, value in body if name in body.model_fields_set}
        if asked.get("n") not in (None, 1):
            raise HTTPException(_BAD_REQUEST, f"a rollout that is trained on has one reply, not {asked['n']!r}")
        tools = None if asked.get("tool_choice") == "none" else _to_plain(asked.get("tools"))
        limits = (asked.get("max_completion_tokens"), asked.get("max_tokens"))
        limit = next((each for each in limits if each is not None), None)
        try:
            answer = await session.answer(_to_plain(asked["messages"]), tools, limit)
        except ValueError as error:  # a message that the engine cannot read
            raise HTTPException(_BAD_REQUEST, str(error)) from error
        return NeMoGymChatCompletion.model_validate(_build_completion(answer, session.settings.model))


def _build_completion(answer: TokenAnswer, model: str) -> dict[str, Any]:
    turn = answer.turn
    generated = 0
    message = dict(answer.message)
    if turn is not None:
        generated = len(turn.generated_ids)
        message["prompt_token_ids"] = turn.prompt_ids
        message["generation_token_ids"] = turn.generated_ids
        message["generation_log_probs"] = turn.log_probs
    usage = {"prompt_tokens": answer.prompt_length, "completion_tokens": generated}
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time()),
        "model": model,
        "choices": [{"index": 0, "finish_reason": answer.finish_reason, "message": message}],
        "usage": {**usage, "total_tokens": answer.prompt_length + generated},
    }


def _to_plain(values: Any) -> Any:
    """Return messages or tools as plain objects: they come as models over HTTP, and as dicts from a conversion."""
    if values is None:
        return None
    return [value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else value for value in values]


if __name__ == "__main__":
    TokenEngineModel.run_webserver()
