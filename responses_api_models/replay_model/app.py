# SPDX-License-Identifier: Apache-2.0
"""A model server without a model: it answers from recorded rollouts or from a script, at memory speed.

For tests, demos, load tests, and for replaying recorded answers against changed tools or verifiers. It never samples: a
prompt that was not recorded is an error, unless the config says otherwise.
"""

import asyncio
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request
from pydantic import Field, NonNegativeFloat, PrivateAttr, model_validator

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseUsage,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.rollout_correlation import RolloutPathMiddleware, current_rollout_id
from nemo_gym.server_utils import SESSION_ID_KEY
from responses_api_models.replay_model.forms import ReplayMiss
from responses_api_models.replay_model.recordings import Asked, Recordings
from responses_api_models.replay_model.script import Script

_NOT_FOUND = 404
_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_SOURCES = ("rollouts_jsonl_fpath", "script", "replies")


class ReplayModelConfig(BaseResponsesAPIModelConfig):
    """Config of a replay. Exactly one of `rollouts_jsonl_fpath`, `script` and `replies` says what is replayed."""

    rollouts_jsonl_fpath: str | None = None
    """Recorded rollouts: the output file of a run. A request gets what the model answered to the same input."""
    script: str | None = None
    """File with replies, a YAML list or one JSON value per line: turn n of every conversation gets reply n."""
    replies: list[Any] | None = Field(default=None, min_length=1)
    """The replies themselves, instead of a script file."""
    on_miss: Literal["error", "cycle"] = "error"
    """A prompt that was not recorded, or the turn after a script's last: `error` refuses it, `cycle` answers anyway."""
    latency_ms: NonNegativeFloat = 0.0
    """How long every answer takes."""
    model: str | None = None
    """Model name in the answers; None: the recorded one, or "replay" for a script."""

    @model_validator(mode="after")
    def _require_one_source(self) -> "ReplayModelConfig":
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(_SOURCES)}; given: {', '.join(given) or 'none'}")
        return self

    @model_validator(mode="after")
    def _keep_one_order(self) -> "ReplayModelConfig":
        # Several recordings of one prompt are given in turn, to whichever worker of a run asks.
        if self.rollouts_jsonl_fpath is not None and "run_once" not in self.model_fields_set:
            self.run_once = True
        return self


class ReplayModel(SimpleResponsesAPIModel):
    """Answers with what was recorded or written down."""

    is_chat_only = True

    config: ReplayModelConfig
    _recordings: Recordings | None = PrivateAttr(default=None)
    _script: Script | None = PrivateAttr(default=None)
    _converter: ResponsesConverter = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        config = self.config
        cycles = self.config.on_miss == "cycle"
        self._converter = ResponsesConverter(return_token_id_information=True, uses_reasoning_parser=True)
        if config.rollouts_jsonl_fpath is not None:
            self._recordings = Recordings.load(_resolve_under_cwd_or_install(config.rollouts_jsonl_fpath))
        elif config.script is not None:
            self._script = Script.load(_resolve_under_cwd_or_install(config.script), starts_over=cycles)
        else:
            source = f"the config of {config.name!r}"
            self._script = Script(config.replies or [], source, starts_over=cycles)
        return super().model_post_init(context)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.add_middleware(RolloutPathMiddleware)
        return app

    async def responses(  # type: ignore[override]  # arguments are found by name
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        if self.config.latency_ms:
            await asyncio.sleep(self.config.latency_ms / 1000)
        try:
            return self._replay(request, body)
        except ReplayMiss as miss:
            raise HTTPException(_NOT_FOUND, str(miss)) from miss

    async def chat_completions(  # type: ignore[override]  # arguments are found by name
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        params = self._converter.chat_completion_to_responses_create_params(body)
        return build_chat_completion(await self.responses(request, params))

    def _replay(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        if self._script is not None:
            return self._script.make_next_turn(body, self.config.model or "replay")
        assert self._recordings is not None
        asked = Asked(request.session.get(SESSION_ID_KEY), current_rollout_id(), body.metadata)
        try:
            answer = self._recordings.find_next_turn(body.input, body.instructions, asked)
        except ReplayMiss:
            if self.config.on_miss == "error":
                raise
            answer = self._recordings.choose_any_turn(body.input, body.instructions)
        return answer if self.config.model is None else answer.model_copy(update={"model": self.config.model})


def build_chat_completion(response: NeMoGymResponse) -> NeMoGymChatCompletion:
    """Return the chat completion that says the same as `response`."""
    message = _build_message(response)
    cut_off = response.incomplete_details.reason if response.incomplete_details else None
    finish_reason = _FINISH_REASONS.get(cut_off or "", "tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "finish_reason": finish_reason, "message": message}
    return NeMoGymChatCompletion.model_validate(
        {
            "id": response.id,
            "object": "chat.completion",
            "created": int(response.created_at),
            "model": response.model,
            "choices": [choice],
            "usage": None if response.usage is None else _build_usage(response.usage),
        }
    )


def _build_message(response: NeMoGymResponse) -> dict[str, Any]:
    params = NeMoGymResponseCreateParamsNonStreaming.model_construct(input=response.output)
    for with_tokens in (True, False):  # the tokens of several model calls do not fit on one message
        converter = ResponsesConverter(return_token_id_information=with_tokens)
        messages = converter.responses_to_chat_completion_create_params(params).messages
        if len(messages) == 1:
            break
    return dict(messages[0])


def _build_usage(usage: NeMoGymResponseUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "prompt_tokens_details": usage.input_tokens_details.model_dump(),
        "completion_tokens": usage.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": usage.output_tokens_details.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


if __name__ == "__main__":
    ReplayModel.run_webserver()
