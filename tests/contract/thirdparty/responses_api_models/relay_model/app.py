# SPDX-License-Identifier: Apache-2.0
from typing import Any

from aiohttp.client_exceptions import ClientResponseError
from fastapi import Request
from pydantic import Field, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    RATE_LIMIT_ERROR_CODES,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import SESSION_ID_KEY


class RelayModelConfig(BaseResponsesAPIModelConfig):
    base_url: str | list[str]
    api_key: str
    model: str
    extra_body: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        if isinstance(self.base_url, str):
            self.base_url = [self.base_url]
        return super().model_post_init(context)


class RelayModel(SimpleResponsesAPIModel):
    config: RelayModelConfig

    _clients: list[NeMoGymAsyncOpenAI] = PrivateAttr()
    _client_of_session: dict[str, NeMoGymAsyncOpenAI] = PrivateAttr(default_factory=dict)
    _converter: ResponsesConverter = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._clients = [NeMoGymAsyncOpenAI(base_url=url, api_key=self.config.api_key) for url in self.config.base_url]
        self._converter = self.get_converter()
        return super().model_post_init(context)

    def get_converter(self) -> ResponsesConverter:
        return ResponsesConverter(return_token_id_information=False)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        params = self._converter.responses_to_chat_completion_create_params(body)
        body.model = self.config.model
        completion = await self.chat_completions(request, params)
        return self._converter.chat_completion_to_response(responses_create_params=body, chat_completion=completion)

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        session_id = request.session[SESSION_ID_KEY]
        client = self._client_of_session.setdefault(
            session_id, self._clients[len(self._client_of_session) % len(self._clients)]
        )
        try:
            reply = await client.create_chat_completion(
                **self.config.extra_body, **body.model_dump(exclude_unset=True) | {"model": self.config.model}
            )
        except ClientResponseError as e:
            if e.status == 400 and b"context length" in e.response_content:
                return self._too_long()
            if e.status in RATE_LIMIT_ERROR_CODES:
                raise RuntimeError("busy") from e
            raise
        return NeMoGymChatCompletion.model_validate(reply)

    def _too_long(self) -> NeMoGymChatCompletion:
        message = NeMoGymChatCompletionMessage(role="assistant", content=None, tool_calls=None)
        return NeMoGymChatCompletion(
            id="chtcmpl-too-long",
            object="chat.completion",
            created=0,
            model=self.config.model,
            choices=[NeMoGymChoice(index=0, finish_reason="length", message=message, logprobs=None)],
        )


if __name__ == "__main__":
    RelayModel.run_webserver()
