# SPDX-License-Identifier: Apache-2.0
"""A hosted endpoint that only speaks Chat Completions as a model server.

Responses requests are converted. Token ids, sticky endpoints and reasoning parsers are for endpoints one runs oneself:
see `vllm_model`.
"""

from asyncio import Semaphore
from typing import Any

from pydantic import Field, PositiveInt, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.openai_model import replies
from responses_api_models.vllm_model.overrides import with_overrides


class InferenceProviderConfig(BaseResponsesAPIModelConfig):
    """Config of a chat-only endpoint."""

    base_url: str
    """Where the endpoint is, up to and with `/v1`."""
    api_key: str
    model: str
    """The model to ask for, whatever a request says."""
    uses_reasoning_parser: bool = False
    """Closed `<think>` blocks in a reply are reasoning. Otherwise they stay in the text."""
    num_concurrent_requests: PositiveInt = 1000
    """Most requests under way at once."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields added to every request that does not set them itself, nor in `metadata.extra_body` (JSON text)."""


class InferenceProvider(SimpleResponsesAPIModel):
    """Answers with a chat-only endpoint."""

    config: InferenceProviderConfig
    _client: NeMoGymAsyncOpenAI = PrivateAttr()
    _converter: ResponsesConverter = PrivateAttr()
    _slots: Semaphore = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = NeMoGymAsyncOpenAI(base_url=self.config.base_url, api_key=self.config.api_key)
        self._converter = ResponsesConverter(
            return_token_id_information=False, uses_reasoning_parser=self.config.uses_reasoning_parser
        )
        self._slots = Semaphore(self.config.num_concurrent_requests)
        return super().model_post_init(context)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        chat_params = self._converter.responses_to_chat_completion_create_params(body)
        chat_completion = await self.chat_completions(chat_params)
        asked = body.model_copy(update={"model": self.config.model})
        return self._converter.chat_completion_to_response(asked, chat_completion)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        asked = {name: value for name, value in body if name in body.model_fields_set}
        params = with_overrides({**asked, "model": self.config.model}, self.config.extra_body, None)
        async with self._slots:
            reply = await self._client.create_chat_completion(**params)
        return replies.chat_completion(reply, f"{self.config.base_url}/chat/completions")


if __name__ == "__main__":
    InferenceProvider.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = InferenceProvider.run_webserver()
