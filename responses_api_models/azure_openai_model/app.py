# SPDX-License-Identifier: Apache-2.0
"""A deployment on Azure OpenAI as a model server, through the official SDK, which knows Azure's addresses and keys.

Azure is called by Chat Completions; Responses requests are converted, with usage and tool choice kept.
"""

from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig
from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import NeMoGymChatCompletion
from nemo_gym.responses_converter import InvalidModelReply
from responses_api_models.openai_model.endpoint import (
    EXTRA_BODY,
    ChatOnlyModel,
    parse_completion,
    parse_json_object,
    strip_metadata,
)

if TYPE_CHECKING:
    from openai import AsyncAzureOpenAI

_API_VERSION = "api-version"
_MAX_RETRIES = 5  # of the SDK, which waits as long as `Retry-After` says


class AzureOpenAIModelServerConfig(BaseResponsesAPIModelConfig):
    """Config of an Azure OpenAI deployment."""

    openai_base_url: str
    """The resource's endpoint, such as `https://<resource>.openai.azure.com`."""
    openai_api_key: str
    """The endpoint's API key."""
    openai_model: str
    """Name of the deployment."""
    default_query: dict[str, str]
    """Query parameters of every request; `api-version` must be one of them."""
    num_concurrent_requests: PositiveInt
    """Maximum requests at once."""


class AzureOpenAIModelServer(ChatOnlyModel):
    """Answers with an Azure OpenAI deployment."""

    config: AzureOpenAIModelServerConfig
    _client: "AsyncAzureOpenAI" = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = self._make_client()
        self._set_up(self.config.openai_model, self.config.num_concurrent_requests)
        return super().model_post_init(context)

    def _make_client(self) -> "AsyncAzureOpenAI":
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
            # A redirect would take the key along.
            http_client=DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def _complete(self, params: dict[str, Any]) -> NeMoGymChatCompletion:
        extra_body = parse_json_object(params.get("metadata") or {}, EXTRA_BODY)
        asked = strip_metadata(params, EXTRA_BODY)
        reply = await self._client.chat.completions.create(**asked, extra_body=extra_body or None)
        endpoint = f"{self.config.openai_base_url} (deployment {self.config.openai_model!r})"
        if isinstance(reply, str):  # what the SDK makes of a body that is not JSON
            raise InvalidModelReply(f"the endpoint {endpoint} reported success but sent no JSON", reply[:2000])
        return parse_completion(reply.model_dump(exclude_unset=True), endpoint)


if __name__ == "__main__":
    AzureOpenAIModelServer.run_webserver()
