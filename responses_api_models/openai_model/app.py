# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible endpoint as a model server: requests pass through unchanged except for the model name.

Nothing is converted: `/v1/responses` needs an endpoint that speaks the Responses API, and one that only speaks chat
belongs behind `vllm_model` or `inference_provider`. Token ids in a reply are put where trainers look for them.
"""

from asyncio import Semaphore
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from fastapi import FastAPI, Request
from pydantic import AliasChoices, BaseModel, Field, PositiveInt, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from responses_api_models.openai_model import endpoint, tokens


class SimpleModelServerConfig(BaseResponsesAPIModelConfig):
    """Config of an OpenAI-compatible endpoint."""

    openai_base_url: str
    """URL of the endpoint, such as `https://api.openai.com/v1`."""
    openai_api_key: str
    """The endpoint's API key."""
    openai_model: str = Field(validation_alias=AliasChoices("openai_model", "openai_model_name"))
    """The model to ask for, whatever a request says. `openai_model_name` is an older name of this field."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields added to every request that does not set them."""
    openai_default_headers: dict[str, str] = Field(default_factory=dict)
    """HTTP headers sent with every request."""
    max_concurrent_requests: PositiveInt | None = None
    """Maximum requests at once; None: no limit."""
    drop_input_reasoning_items: bool = False
    """Leave reasoning items out of the input, for endpoints that refuse them."""


class SimpleModelServer(SimpleResponsesAPIModel):
    """Passes requests on to an OpenAI-compatible endpoint."""

    config: SimpleModelServerConfig
    _client: NeMoGymAsyncOpenAI = PrivateAttr()
    _slots: AbstractAsyncContextManager[Any] = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = NeMoGymAsyncOpenAI(
            base_url=self.config.openai_base_url,
            api_key=self.config.openai_api_key,
            default_headers=self.config.openai_default_headers,
        )
        limit = self.config.max_concurrent_requests
        self._slots = Semaphore(limit) if limit else nullcontext()
        return super().model_post_init(context)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/detokenize")(self.detokenize)
        return app

    async def detokenize(self, body: tokens.DetokenizeRequest = Body()) -> dict[str, Any]:
        """`POST /detokenize`: the text of token ids, if the endpoint gives it."""
        return await tokens.detokenize(self._client, self.config.openai_model, body.tokens)

    async def _call_responses_backend(self, request: Request, method: str, response_id: str) -> dict[str, Any]:
        return await self._client.call_response(method, response_id)

    async def responses(
        self, body: NeMoGymResponseCreateParamsNonStreaming = Body(), request: Request | None = None
    ) -> NeMoGymResponse:
        params = self._build_params(body)
        if self.config.drop_input_reasoning_items and isinstance(params["input"], list):
            params["input"] = [item for item in params["input"] if item.get("type") != "reasoning"]
        async with self._slots:
            reply = tokens.place_response_tokens(await self._client.create_response(**params))
        if body.background and request is not None and self.is_outside(request):
            return NeMoGymResponse.model_validate(reply)  # without an answer yet, which the program will fetch
        return endpoint.parse_response(reply, f"{self.config.openai_base_url}/responses")

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        async with self._slots:
            reply = tokens.place_chat_tokens(await self._client.create_chat_completion(**self._build_params(body)))
        return endpoint.parse_completion(reply, f"{self.config.openai_base_url}/chat/completions")

    def _build_params(self, body: BaseModel) -> dict[str, Any]:
        asked = body.model_dump(exclude_unset=True)
        return {**self.config.extra_body, **asked, "model": self.config.openai_model}


if __name__ == "__main__":
    SimpleModelServer.run_webserver()
