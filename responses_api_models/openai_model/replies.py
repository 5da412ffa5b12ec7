# SPDX-License-Identifier: Apache-2.0
"""What an endpoint sent, as a typed reply or as an error that names the endpoint. Shared by the model servers.

Transport problems (statuses, timeouts, bodies that are not JSON) are raised earlier, by the client.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.responses_converter import (
    InvalidModelReply,
    explain_unanswered_completion,
    explain_unanswered_response,
)

_SHOWN = 2000


def chat_completion(reply: Mapping[str, Any], endpoint: str) -> NeMoGymChatCompletion:
    """Return `reply` as a chat completion; InvalidModelReply if it is none, or no answer."""
    require_completion(reply, endpoint)
    try:
        return NeMoGymChatCompletion.model_validate(reply)
    except ValidationError as error:
        raise _not_a("chat completion", reply, endpoint, error) from error


def require_completion(reply: Mapping[str, Any], endpoint: str) -> None:
    """Raise unless `reply`, a chat completion, is an answer."""
    if reason := explain_unanswered_completion(reply):
        raise _no_answer(reply, endpoint, reason)


def response(reply: Mapping[str, Any], endpoint: str) -> NeMoGymResponse:
    """Return `reply` as a response; InvalidModelReply if it is none, or no answer."""
    try:
        answer = NeMoGymResponse.model_validate(reply)
    except ValidationError as error:
        raise _not_a("response", reply, endpoint, error) from error
    if reason := explain_unanswered_response(reply):
        raise _no_answer(reply, endpoint, reason)
    return answer


def _no_answer(reply: Mapping[str, Any], endpoint: str, reason: str) -> InvalidModelReply:
    return InvalidModelReply(
        f"the endpoint {endpoint} reported success, but its reply is no answer: {reason}.\n"
        "hint: it failed or refused without saying so; its own log says why",
        shown(reply),
    )


def _not_a(kind: str, reply: Mapping[str, Any], endpoint: str, error: ValidationError) -> InvalidModelReply:
    problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()[:5])
    return InvalidModelReply(f"the endpoint {endpoint} sent JSON that is no {kind}: {problems}", shown(reply))


def shown(reply: Any) -> str:
    """The start of `reply`, for a message."""
    return orjson.dumps(reply, default=repr).decode()[:_SHOWN]
