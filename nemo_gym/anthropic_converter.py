# SPDX-License-Identifier: Apache-2.0
"""Convert between Anthropic Messages and Responses, so that Anthropic clients can talk to any model server.

`nemo_gym._wire.converters.anthropic` documents what each direction keeps and loses.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from nemo_gym._wire.converters.anthropic import (
    AnthropicMessagesRequest as AnthropicMessagesRequest,
    convert_request,
    convert_response,
)
from nemo_gym._wire.schema.replies import NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming


def messages_to_responses_create_params(
    body: AnthropicMessagesRequest | Mapping[str, Any],
) -> NeMoGymResponseCreateParamsNonStreaming:
    """Return the equivalent Responses request; raise a pydantic `ValidationError` if `body` is malformed."""
    return convert_request(AnthropicMessagesRequest.model_validate(body), lambda: uuid4().hex)


def response_to_anthropic_message(response: NeMoGymResponse, model: str | None = None) -> dict[str, Any]:
    """Return the reply in the shape of Anthropic's API; `model` is the model name the client asked for."""
    return convert_response(response, model)
