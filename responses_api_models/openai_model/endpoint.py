# SPDX-License-Identifier: Apache-2.0
"""What model servers in front of an OpenAI-compatible endpoint share.

A request says in its `metadata` what the Responses API has no field for, as JSON objects in text: `extra_body` holds
further fields of the request, `chat_template_kwargs` arguments of the chat template. What is taken from the metadata is
not sent on. A reply becomes a typed one, or an error that names the endpoint; transport problems (statuses, timeouts,
bodies that are not JSON) are raised earlier, by the client.
"""

from abc import abstractmethod
from asyncio import Semaphore
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel, PrivateAttr, ValidationError

from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import (
    InvalidModelReply,
    ResponsesConverter,
    explain_unanswered_completion,
    explain_unanswered_response,
)

EXTRA_BODY = "extra_body"
CHAT_TEMPLATE_KWARGS = "chat_template_kwargs"
_EXCERPT_LENGTH = 2000


class ChatOnlyModel(SimpleResponsesAPIModel):
    """A model server in front of an endpoint that only speaks Chat Completions."""

    is_chat_only = True

    _model: str = PrivateAttr()
    _slots: Semaphore = PrivateAttr()
    _converter: ResponsesConverter = PrivateAttr()

    def _set_up(self, model: str, most_requests: int, *, uses_reasoning_parser: bool = False) -> None:
        """Ask for `model`, with at most so many requests under way at once."""
        self._model = model
        self._slots = Semaphore(most_requests)
        self._converter = ResponsesConverter(
            return_token_id_information=False, uses_reasoning_parser=uses_reasoning_parser
        )

    @abstractmethod
    async def _complete(self, params: dict[str, Any]) -> NeMoGymChatCompletion:
        """Ask the endpoint for a chat completion."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        chat_params = self._converter.responses_to_chat_completion_create_params(body)
        chat_completion = await self.chat_completions(chat_params)
        asked = body.model_copy(update={"model": self._model})
        return self._converter.chat_completion_to_response(asked, chat_completion)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        async with self._slots:
            return await self._complete({**get_set_fields(body), "model": self._model})


def get_set_fields(body: BaseModel) -> dict[str, Any]:
    """Return the fields that a request sets, as they are: a dump would copy the token ids of its messages."""
    return {name: value for name, value in body if name in body.model_fields_set}


def apply_overrides(
    body: Mapping[str, Any], extra_body: Mapping[str, Any] | None, chat_template_kwargs: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Add what the config and the metadata say to `body`: config < metadata < fields of the request itself."""
    metadata = body.get("metadata") or {}
    merged = {**(extra_body or {}), **parse_json_object(metadata, EXTRA_BODY), **body}
    arguments = {
        **(merged.get(CHAT_TEMPLATE_KWARGS) or {}),
        **(chat_template_kwargs or {}),
        **parse_json_object(metadata, CHAT_TEMPLATE_KWARGS),
    }
    if arguments:
        merged[CHAT_TEMPLATE_KWARGS] = arguments
    return strip_metadata(merged, EXTRA_BODY, CHAT_TEMPLATE_KWARGS)


def strip_metadata(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return `body` without those keys of its metadata, and without metadata if that leaves none."""
    metadata = body.get("metadata") or {}
    if metadata and not metadata.keys() & set(names):
        return dict(body)
    rest = {name: value for name, value in metadata.items() if name not in names}
    kept = {name: value for name, value in body.items() if name != "metadata"}
    return {**kept, "metadata": rest} if rest else kept


def parse_json_object(metadata: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the JSON object that `metadata[name]` holds as text; empty if it is not there."""
    text = metadata.get(name)
    if not text:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(
            f"metadata.{name} must be a JSON object as text, but is not JSON ({error}): {text!r}"
        ) from error
    if isinstance(found, dict):
        return found
    raise ValueError(f"metadata.{name} must be a JSON object as text, not {type(found).__name__}: {text!r}")


def parse_completion(reply: Mapping[str, Any], endpoint: str) -> NeMoGymChatCompletion:
    """Return `reply` as a chat completion; InvalidModelReply if it is not one, or contains no answer."""
    require_answer(reply, endpoint)
    try:
        return NeMoGymChatCompletion.model_validate(reply)
    except ValidationError as error:
        raise _describe_misfit("chat completion", reply, endpoint, error) from error


def require_answer(reply: Mapping[str, Any], endpoint: str) -> None:
    """Raise InvalidModelReply unless `reply`, a chat completion, contains an answer."""
    if reason := explain_unanswered_completion(reply):
        raise _describe_non_answer(reply, endpoint, reason)


def parse_response(reply: Mapping[str, Any], endpoint: str) -> NeMoGymResponse:
    """Return `reply` as a response; InvalidModelReply if it is not one, or contains no answer."""
    try:
        answer = NeMoGymResponse.model_validate(reply)
    except ValidationError as error:
        raise _describe_misfit("response", reply, endpoint, error) from error
    if reason := explain_unanswered_response(reply):
        raise _describe_non_answer(reply, endpoint, reason)
    return answer


def _describe_non_answer(reply: Mapping[str, Any], endpoint: str, reason: str) -> InvalidModelReply:
    return InvalidModelReply(
        f"the endpoint {endpoint} reported success, but its reply contains no answer: {reason}.\n"
        "hint: it failed or refused without saying so; look at its log",
        excerpt(reply),
    )


def _describe_misfit(kind: str, reply: Mapping[str, Any], endpoint: str, error: ValidationError) -> InvalidModelReply:
    problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()[:5])
    return InvalidModelReply(f"the endpoint {endpoint} sent JSON that is not a {kind}: {problems}", excerpt(reply))


def excerpt(reply: Any) -> str:
    """Return the start of `reply`, for a message."""
    return orjson.dumps(reply, default=repr).decode()[:_EXCERPT_LENGTH]
