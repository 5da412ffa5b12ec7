# SPDX-License-Identifier: Apache-2.0
"""Anthropic Messages ↔ Responses, so that clients of that API can talk to any model server.

What each direction keeps and loses is said in `nemo_gym._wire.converters.anthropic`.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from nemo_gym._wire.converters.anthropic import AnthropicMessagesRequest as AnthropicMessagesRequest
from nemo_gym._wire.converters.anthropic import convert_request, convert_response
from nemo_gym._wire.schema.replies import NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming


def messages_to_responses_create_params(
    body: AnthropicMessagesRequest | Mapping[str, Any],
) -> NeMoGymResponseCreateParamsNonStreaming:
    """Return the Responses request that asks for the same; a malformed `body` is a pydantic `ValidationError`."""
    return convert_request(AnthropicMessagesRequest.model_validate(body), lambda: uuid4().hex)


def response_to_anthropic_message(response: NeMoGymResponse, model: str | None = None) -> dict[str, Any]:
    """Return the reply as Anthropic's API would give it; `model` is the name that the client asked for."""
    return convert_response(response, model)
