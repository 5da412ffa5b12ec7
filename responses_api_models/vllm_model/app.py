# SPDX-License-Identifier: Apache-2.0
"""A vLLM (or any other chat) endpoint as a model server: Responses in front, Chat Completions behind.

This module has the order of the steps of a request and its reply; the modules next to it implement them. It does not
start an inference server: `local_vllm_model` does.
"""

import asyncio
import logging
from hashlib import sha256
from time import time
from typing import Any
from uuid import uuid4

from aiohttp import ClientResponseError
from fastapi import FastAPI, Request
from pydantic import Field, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import (
    VLLMConverter,
    VLLMConverterResponsesToChatCompletionsState as VLLMConverterResponsesToChatCompletionsState,
    split_responses_input_output_items as split_responses_input_output_items,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from responses_api_models.openai_model import endpoint
from responses_api_models.openai_model.tokens import (
    DetokenizeRequest,
    detokenize,
    find_tokens_so_far,
    place_response_tokens,
)
from responses_api_models.vllm_model import completions, messages, tokens

LOG = logging.getLogger(__name__)
_BAD_REQUEST = 400
_TOO_LONG = (b"context length", b"max_tokens")
_PREFIX = "required_prefix_token_ids"
_TOKENIZED = ("model", "messages", "tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", _PREFIX)


class VLLMModelConfig(BaseResponsesAPIModelConfig):
    """Config of a vLLM endpoint."""

    base_url: str | list[str]
    """URL of the endpoint, including `/v1`. Given several, each session sticks to one."""
    api_key: str
    """The endpoint's API key."""
    model: str
    """The model to ask for, whatever a request says."""
    return_token_id_information: bool
    """Add token ids and log-probs to replies, for training."""
    uses_reasoning_parser: bool
    """The endpoint has a reasoning parser: reasoning travels in its own field, not in the text."""
    request_prompt_and_generation_token_ids: bool = False
    """Ask for `return_token_ids` too, which saves the call to `/tokenize` (vLLM 0.10.2 and later)."""
    send_required_prefix_token_ids: bool = False
    """Send the tokens that the prompt must begin with (`required_prefix_token_ids`) to endpoints that heed it, such as
    NeMo RL's: all tokens up to the end of the last reply in the history that carries its tokens."""
    uses_interleaved_reasoning: bool = True
    """Send the reasoning of earlier turns too. Otherwise it is dropped from the history."""
    preserve_reasoning_in_assistant_content: bool = False
    """Leave the reasoning of earlier turns as `<think>` in the text, for chat templates that expect it there."""
    replace_developer_role_with_system: bool = False
    """Send developer messages as system messages, for chat templates without a developer role."""
    sequential_reasoning_allowed: bool = True
    """Ask again after a turn that held only reasoning. Otherwise such a turn ends with an empty, filtered reply."""
    is_responses_native: bool = False
    """The endpoint speaks the Responses API: pass requests on without conversion."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Arguments of the chat template; a request's `metadata.chat_template_kwargs` (JSON text) goes on top."""
    sampling_overrides: dict[str, Any] | None = None
    """Fields set on every request, whatever it says itself."""
    extra_body: dict[str, Any] | None = None
    """Fields added to every request, unless it or its `metadata.extra_body` (JSON text) sets them."""
    default_headers: dict[str, str] = Field(default_factory=dict)
    """HTTP headers sent with every request."""
    audio_root: str | None = None
    """Root folder of the audio paths in a request's metadata, which they may not leave."""
    use_completions_api: bool = False
    """Call `/v1/completions` with a prompt instead of `/v1/chat/completions`."""
    render_chat_template: bool = False
    """With `use_completions_api`: write the prompt with the tokenizer's chat template instead of as plain text."""
    tokenizer: str | None = None
    """Tokenizer for `render_chat_template`, by name or path; None: that of `model`."""

    def model_post_init(self, context: Any) -> None:
        if isinstance(self.base_url, str):
            self.base_url = [self.base_url]
        return super().model_post_init(context)


class VLLMModel(SimpleResponsesAPIModel):
    """Answers with a chat endpoint."""

    config: VLLMModelConfig
    _clients: list[NeMoGymAsyncOpenAI] = PrivateAttr()
    _converter: VLLMConverter = PrivateAttr()
    _loading_tokenizer: asyncio.Task[Any] | None = PrivateAttr(default=None)
    _has_warned_of_prefix: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any) -> None:
        self._post_init()
        return super().model_post_init(context)

    def _post_init(self) -> None:
        """Create what depends on the config; subclasses call it again once they know their endpoint."""
        self._clients = [
            NeMoGymAsyncOpenAI(
                base_url=base_url, api_key=self.config.api_key, default_headers=self.config.default_headers
            )
            for base_url in self.config.base_url
        ]
        self._converter = self.get_converter()

    def get_converter(self) -> VLLMConverter:
        return VLLMConverter(
            return_token_id_information=self.config.return_token_id_information,
            uses_reasoning_parser=self.config.uses_reasoning_parser,
        )

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/detokenize")(self.detokenize)
        return app

    async def detokenize(self, request: Request, body: DetokenizeRequest = Body()) -> dict[str, Any]:
        """`POST /detokenize`: the text of token ids, if the endpoint gives it."""
        return await detokenize(self._resolve_client(request), self.config.model, body.tokens)

    def _has_responses_backend(self) -> bool:
        return self.config.is_responses_native

    async def _call_responses_backend(self, request: Request, method: str, response_id: str) -> dict[str, Any]:
        return await self._resolve_client(request).call_response(method, response_id)

    async def count_tokens(self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming) -> int | None:
        chat_params = self._converter.responses_to_chat_completion_create_params(
            params.model_copy(update={"model": self.config.model})
        )
        asked = await self._preprocess(request, endpoint.get_set_fields(chat_params))
        to_tokenize = {name: asked[name] for name in _TOKENIZED if name in asked}
        try:
            return len(await self._tokenize(self._resolve_client(request), to_tokenize))
        except (ClientResponseError, RuntimeError):  # not every chat endpoint has a route to tokenize
            return None

    async def responses(  # type: ignore[override]  # arguments are found by name
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        body = body.model_copy(update={"model": self.config.model})
        if self.config.is_responses_native:
            return await self._answer_natively(request, body)
        chat_params = self._converter.responses_to_chat_completion_create_params(body)
        chat_completion = await self.chat_completions(request, chat_params)
        return self._converter.chat_completion_to_response(body, chat_completion)

    async def chat_completions(  # type: ignore[override]  # arguments are found by name
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        params = await self._preprocess(request, {**endpoint.get_set_fields(body), "model": self.config.model})
        if not self.config.sequential_reasoning_allowed and messages.ends_with_empty_assistant(params["messages"]):
            return self._make_empty_completion("content_filter")
        client = self._resolve_client(request)
        try:
            if self.config.use_completions_api:
                return await self._complete_text(client, params)
            return await self._complete_chat(client, params)
        except ClientResponseError as error:
            if _is_too_long(error) and not self.is_outside_of_rollouts(request):
                return self._make_empty_completion("length")
            raise

    # --- the request --------------------------------------------------------------------------------------------------

    async def _preprocess(self, request: Request, params: dict[str, Any]) -> dict[str, Any]:
        if messages.has_audio(params):  # reads files
            return await asyncio.to_thread(self._preprocess_chat_completion_create_params, request, params)
        return self._preprocess_chat_completion_create_params(request, params)

    def _preprocess_chat_completion_create_params(self, request: Request, body_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the request as the endpoint gets it."""
        config = self.config
        params = endpoint.apply_overrides(body_dict, config.extra_body, config.chat_template_kwargs)
        if config.replace_developer_role_with_system:
            params["messages"] = messages.rename_developer_role(params["messages"])
        if config.return_token_id_information:
            with_token_ids = config.request_prompt_and_generation_token_ids
            params |= tokens.build_token_request(with_token_ids=with_token_ids)
        if config.send_required_prefix_token_ids and not config.use_completions_api:
            prefix = find_tokens_so_far(params["messages"])
            params |= {_PREFIX: prefix} if prefix is not None else {}
        if config.uses_reasoning_parser and not config.preserve_reasoning_in_assistant_content:
            params["messages"] = messages.separate_reasoning(
                params["messages"],
                self._converter._extract_reasoning_from_content,
                interleaved=config.uses_interleaved_reasoning,
            )
        if params.get("top_logprobs", 0) is None:
            del params["top_logprobs"]
        if messages.has_audio(params):
            params = messages.insert_audio(params, config.audio_root)
        params |= config.sampling_overrides or {}
        if config.return_token_id_information and params.get("n") not in (None, 1):
            raise ValueError(
                f"with `return_token_id_information` a request gets one choice, but asks for {params['n']!r}"
            )
        return params

    def _resolve_client(self, request: Request) -> NeMoGymAsyncOpenAI:
        """Return the endpoint of the request's session: always the same, so that its cache knows the conversation."""
        if len(self._clients) == 1:
            return self._clients[0]
        if not self._clients:
            raise ConfigError(f"model server {self.config.name!r} has no endpoint.\nhint: give it a `base_url`")
        digest = sha256(str(request.session[SESSION_ID_KEY]).encode()).hexdigest()
        return self._clients[int(digest, 16) % len(self._clients)]

    # --- the call -----------------------------------------------------------------------------------------------------

    async def _complete_chat(self, client: NeMoGymAsyncOpenAI, params: dict[str, Any]) -> NeMoGymChatCompletion:
        reply = await client.create_chat_completion(**params)
        to_tokenize = {name: params[name] for name in _TOKENIZED if name in params}
        completion = await self._finish_reply(client, reply, "/chat/completions", to_tokenize)
        if _PREFIX in params and self.config.return_token_id_information:
            self._check_prefix(params[_PREFIX], getattr(completion.choices[0].message, "prompt_token_ids", []))
        return completion

    def _check_prefix(self, prefix: list[int], prompt_ids: list[int]) -> None:
        """Log, once, that the endpoint does not heed the prefix. The end of a rollout reports the effect on it."""
        if prompt_ids[: len(prefix)] == prefix or self._has_warned_of_prefix:
            return
        self._has_warned_of_prefix = True
        LOG.warning(
            "the endpoint of %r was told the %d tokens that the prompt must begin with, but read others. Rollouts "
            "whose tokens do not extend each other are marked (`_ng_token_drift`).\n"
            "hint: only endpoints such as NeMo RL's heed `required_prefix_token_ids`",
            self.config.name,
            len(prefix),
        )

    async def _complete_text(self, client: NeMoGymAsyncOpenAI, params: dict[str, Any]) -> NeMoGymChatCompletion:
        if self.config.render_chat_template:
            prompt = completions.render_prompt(await self._load_tokenizer(), params)
            special = {"add_special_tokens": False}  # the template has written them
        else:
            prompt = completions.join_prompt(params["messages"])
            special = {}
        reply = await client.create_completion(**completions.build_completion_request(params, prompt), **special)
        to_tokenize = {"model": params["model"], "prompt": prompt, **special}
        return await self._finish_reply(client, completions.convert_completion(reply), "/completions", to_tokenize)

    async def _load_tokenizer(self) -> Any:
        """Return the tokenizer, loaded once, by whichever request comes first."""
        if self._loading_tokenizer is None or (self._loading_tokenizer.done() and self._loading_tokenizer.exception()):
            name = self.config.tokenizer or self.config.model
            self._loading_tokenizer = asyncio.create_task(asyncio.to_thread(completions.load_tokenizer, name))
        return await asyncio.shield(self._loading_tokenizer)

    async def _answer_natively(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        self._check_native_settings()
        asked = body.model_dump(exclude_unset=True)
        params = endpoint.apply_overrides(asked, self.config.extra_body, self.config.chat_template_kwargs)
        params |= self.config.sampling_overrides or {}
        client = self._resolve_client(request)
        try:
            reply = place_response_tokens(await client.create_response(**params))
        except ClientResponseError as error:
            if _is_too_long(error) and not self.is_outside_of_rollouts(request):
                return self._converter.chat_completion_to_response(body, self._make_empty_completion("length"))
            raise
        return endpoint.parse_response(reply, f"{client.base_url}/responses")

    def _check_native_settings(self) -> None:
        wanted = {
            "return_token_id_information": self.config.return_token_id_information,
            "replace_developer_role_with_system": self.config.replace_developer_role_with_system,
            "sequential_reasoning_allowed: false": not self.config.sequential_reasoning_allowed,
        }
        if asked := [name for name, is_wanted in wanted.items() if is_wanted]:
            raise NotImplementedError(
                f"`is_responses_native` passes requests on as they are, which leaves no room for {', '.join(asked)}.\n"
                "hint: set `is_responses_native: false`"
            )

    # --- the reply ----------------------------------------------------------------------------------------------------

    async def _finish_reply(
        self, client: NeMoGymAsyncOpenAI, reply: dict[str, Any], path: str, to_tokenize: dict[str, Any]
    ) -> NeMoGymChatCompletion:
        """Return `reply` with its reasoning in the text and its tokens on the message."""
        url = f"{getattr(client, 'base_url', '')}{path}"
        endpoint.require_answer(reply, url)
        reply = {**reply, "choices": [self._place_reasoning(choice) for choice in reply["choices"]]}
        if self.config.return_token_id_information:
            reply = await tokens.attach_tokens(reply, lambda: self._tokenize(client, to_tokenize))
        return endpoint.parse_completion(reply, url)

    def _place_reasoning(self, choice: dict[str, Any]) -> dict[str, Any]:
        message = choice["message"]
        if self.config.uses_reasoning_parser:
            return {
                **choice,
                "message": messages.put_reasoning_in_text(message, self._converter._wrap_reasoning_in_think_tags),
            }
        return {**choice, "message": messages.refuse_reasoning(message)}

    async def _tokenize(self, client: NeMoGymAsyncOpenAI, to_tokenize: dict[str, Any]) -> list[int]:
        reply = await client.create_tokenize(**to_tokenize)
        found = reply.get("tokens")
        if isinstance(found, list):
            return found
        raise RuntimeError(f"/tokenize of {client.base_url} sent no token ids: {endpoint.excerpt(reply)}")

    def _make_empty_completion(self, finish_reason: str) -> NeMoGymChatCompletion:
        message = NeMoGymChatCompletionMessage(role="assistant", content=None, tool_calls=None)
        return NeMoGymChatCompletion(
            id=f"chatcmpl-{uuid4().hex}",
            object="chat.completion",
            created=int(time()),
            model=self.config.model,
            choices=[NeMoGymChoice(index=0, finish_reason=finish_reason, message=message)],
        )


def _is_too_long(error: ClientResponseError) -> bool:
    """Return whether the conversation has outgrown the model's context: an end of the rollout, not a failure."""
    content = getattr(error, "response_content", b"")
    return error.status == _BAD_REQUEST and any(sign in content for sign in _TOO_LONG)


if __name__ == "__main__":
    VLLMModel.run_webserver()
