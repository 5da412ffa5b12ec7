# SPDX-License-Identifier: Apache-2.0
"""What an endpoint sent, as a typed reply or as an error that names the endpoint. Shared by the model servers.

Transport problems (statuses, timeouts, bodies that are not JSON) are raised earlier, by the client.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.responses_converter import InvalidModelReply

_SHOWN = 2000


def chat_completion(reply: Mapping[str, Any], endpoint: str) -> NeMoGymChatCompletion:
    """`reply` as a chat completion. A success without choices is a failure of the endpoint, not an empty answer."""
    require_choices(reply, endpoint)
    try:
        return NeMoGymChatCompletion.model_validate(reply)
    except ValidationError as error:
        raise _not_a("chat completion", reply, endpoint, error) from error


def require_choices(reply: Mapping[str, Any], endpoint: str) -> None:
    """Raise unless `reply` has at least one choice."""
    if isinstance(reply.get("choices"), list) and reply["choices"]:
        return
    raise InvalidModelReply(
        f"the endpoint {endpoint} reported success but sent no choices.\n"
        "hint: it failed or refused without saying so; its own log says why",
        shown(reply),
    )


def response(reply: Mapping[str, Any], endpoint: str) -> NeMoGymResponse:
    """`reply` as a response. One that says that it failed is an error, although it came with status 200."""
    if reply.get("status") == "failed":
        raise InvalidModelReply(
            f"the endpoint {endpoint} sent a response that failed: {reply.get('error')}", shown(reply)
        )
    try:
        return NeMoGymResponse.model_validate(reply)
    except ValidationError as error:
        raise _not_a("response", reply, endpoint, error) from error


def _not_a(kind: str, reply: Mapping[str, Any], endpoint: str, error: ValidationError) -> InvalidModelReply:
    problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()[:5])
    return InvalidModelReply(f"the endpoint {endpoint} sent JSON that is no {kind}: {problems}", shown(reply))


def shown(reply: Any) -> str:
    """The start of `reply`, for a message."""
    return orjson.dumps(reply, default=repr).decode()[:_SHOWN]
