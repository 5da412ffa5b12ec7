# SPDX-License-Identifier: Apache-2.0
"""Streamed Responses requests: make what a streaming client sends fit the schema, and replay a reply as events.

What a request may lose on the way is said in `nemo_gym._wire.streaming_requests`. Streams are text, an event a piece.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from time import time
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.streaming_replies import stream_response, stream_response_failure
from nemo_gym._wire.streaming_requests import (
    ToolNames,
    flatten_namespaces,
    prepare_streaming_request,
    prune_forbidden_fields,
)

LOG = logging.getLogger(__name__)

NamespaceMap = ToolNames


def flatten_namespace_tools(tools: Sequence[Any] | None) -> tuple[list[Any], dict[str, tuple[str, str]]]:
    """Return `tools` with those of namespaces as `<namespace>__<name>`, and the parts of every joined name."""
    return flatten_namespaces(tools or [])


def sanitize_streaming_responses_body(
    body: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Return `body` without what the schema does not know, and the parts of every joined tool name.

    An input item is left out only if it fits no kind of item. `body` itself is left alone.
    """
    params, tool_names, dropped = prepare_streaming_request(body)
    if dropped:
        LOG.info("a streamed request was taken without %s", ", ".join(dropped))
    return params, dict(tool_names)


def validate_streaming_responses_params(body: Mapping[str, Any]) -> NeMoGymResponseCreateParamsNonStreaming:
    """Validate a sanitized `body`; fields that the schema forbids, at any depth, are pruned first."""
    pruned: Any = body
    while True:
        try:
            return NeMoGymResponseCreateParamsNonStreaming.model_validate(pruned)
        except ValidationError as error:
            pruned = deepcopy(pruned)
            if not prune_forbidden_fields(pruned, error):
                raise


def synthesize_responses_sse(response: BaseModel | Mapping[str, Any], map: NamespaceMap | None = None) -> Iterator[str]:
    """Replay `response` in the fewest events: created, every finished item, and how it ended.

    Tools get the names back that `map` holds. Model servers stream all events of the official API.
    """
    for event in stream_response(response, map, items_only=True):
        yield event.decode()


def synthesize_responses_failure_sse(
    message: str, *, code: str = "server_error", model: str | None = None
) -> Iterator[str]:
    """Replay the failure of a backend: a stream that ends with `response.failed`."""
    failed = stream_response_failure(
        message, response_id=f"resp_{uuid4().hex}", created_at=int(time()), model=model, code=code
    )
    for event in failed:
        yield event.decode()
