# SPDX-License-Identifier: Apache-2.0
"""A deployment on Azure OpenAI as a model server, through the official SDK, which knows Azure's addresses and keys.

Azure is asked by Chat Completions; Responses requests are converted, with usage and tool choice kept.
"""

from asyncio import Semaphore
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import InvalidModelReply, ResponsesConverter
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.openai_model import replies
from responses_api_models.vllm_model.overrides import EXTRA_BODY, json_object, without_metadata

if TYPE_CHECKING:
    from openai import AsyncAzureOpenAI

_API_VERSION = "api-version"
_MAX_RETRIES = 5  # of the SDK, which waits as long as `Retry-After` says


class AzureOpenAIModelServerConfig(BaseResponsesAPIModelConfig):
    """Config of an Azure OpenAI deployment."""

    openai_base_url: str
    """The resource's endpoint, such as `https://<resource>.openai.azure.com`."""
    openai_api_key: str
    openai_model: str
    """Name of the deployment."""
    default_query: dict[str, str]
    """Query parameters of every request; `api-version` must be one of them."""
    num_concurrent_requests: PositiveInt
    """Most requests under way at once."""


class AzureOpenAIModelServer(SimpleResponsesAPIModel):
    """Answers with an Azure OpenAI deployment."""

    config: AzureOpenAIModelServerConfig
    _client: "AsyncAzureOpenAI" = PrivateAttr()
    _converter: ResponsesConverter = PrivateAttr()
    _slots: Semaphore = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = self._azure_client()
        self._converter = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=False)
        self._slots = Semaphore(self.config.num_concurrent_requests)
        return super().model_post_init(context)

    def _azure_client(self) -> "AsyncAzureOpenAI":
        try:
            from openai import AsyncAzureOpenAI, DefaultAsyncHttpxClient  # takes most of a second to import
        except ImportError as error:
            raise ConfigError(
                "azure_openai_model needs the package 'openai', which is not installed.\n"
                "hint: `uv pip install 'nemo-gym[azure]'`"
            ) from error
        if _API_VERSION not in self.config.default_query:
            raise ConfigError(
                f"model server {self.config.name!r} does not say which version of Azure's API to use.\n"
                f'hint: give it `default_query: {{{_API_VERSION}: "2024-10-21"}}`'
            )
        return AsyncAzureOpenAI(
            azure_endpoint=self.config.openai_base_url,
            api_key=self.config.openai_api_key,
            api_version=self.config.default_query[_API_VERSION],
            default_query=dict(self.config.default_query),
            max_retries=_MAX_RETRIES,
            # The key would go along to wherever a redirect leads.
            http_client=DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        chat_params = self._converter.responses_to_chat_completion_create_params(body)
        chat_completion = await self.chat_completions(chat_params)
        asked = body.model_copy(update={"model": self.config.openai_model})
        return self._converter.chat_completion_to_response(asked, chat_completion)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        asked = {name: value for name, value in body if name in body.model_fields_set}
        extra_body = json_object(asked.get("metadata") or {}, EXTRA_BODY)
        params = without_metadata({**asked, "model": self.config.openai_model}, EXTRA_BODY)
        async with self._slots:
            reply = await self._client.chat.completions.create(**params, extra_body=extra_body or None)
        endpoint = f"{self.config.openai_base_url} (deployment {self.config.openai_model!r})"
        if isinstance(reply, str):  # what the SDK makes of a body that is not JSON
            raise InvalidModelReply(f"the endpoint {endpoint} reported success but sent no JSON", reply[:2000])
        return replies.chat_completion(reply.model_dump(exclude_unset=True), endpoint)


if __name__ == "__main__":
    AzureOpenAIModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = AzureOpenAIModelServer.run_webserver()
