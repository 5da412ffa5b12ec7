# SPDX-License-Identifier: Apache-2.0
"""A hosted endpoint that only speaks Chat Completions as a model server.

Responses requests are converted. Token ids, sticky endpoints and reasoning parsers are for endpoints that you run
yourself: see `vllm_model`.
"""

from typing import Any

from pydantic import Field, PositiveInt, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymChatCompletion
from responses_api_models.openai_model.endpoint import ChatOnlyModel, apply_overrides, parse_completion


class InferenceProviderConfig(BaseResponsesAPIModelConfig):
    """Config of a chat-only endpoint."""

    base_url: str
    """URL of the endpoint, including `/v1`."""
    api_key: str
    """The endpoint's API key."""
    model: str
    """The model to ask for, whatever a request says."""
    uses_reasoning_parser: bool = False
    """Turn closed `<think>` blocks in a reply into reasoning. Otherwise they stay in the text."""
    num_concurrent_requests: PositiveInt = 1000
    """Maximum requests at once."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields added to every request, unless it or its `metadata.extra_body` (JSON text) sets them."""


class InferenceProvider(ChatOnlyModel):
    """Answers with a chat-only endpoint."""

    config: InferenceProviderConfig
    _client: NeMoGymAsyncOpenAI = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        config = self.config
        self._client = NeMoGymAsyncOpenAI(base_url=config.base_url, api_key=config.api_key)
        self._set_up(config.model, config.num_concurrent_requests, uses_reasoning_parser=config.uses_reasoning_parser)
        return super().model_post_init(context)

    async def _complete(self, params: dict[str, Any]) -> NeMoGymChatCompletion:
        asked = apply_overrides(params, self.config.extra_body, None)
        reply = await self._client.create_chat_completion(**asked)
        return parse_completion(reply, f"{self.config.base_url}/chat/completions")


if __name__ == "__main__":
    InferenceProvider.run_webserver()
