# SPDX-License-Identifier: Apache-2.0
"""What a request says in its `metadata` because the Responses API has no field for it: JSON objects as text.

`metadata.extra_body` holds further fields of the request, `metadata.chat_template_kwargs` arguments of the chat
template. What is taken from the metadata is not sent on.
"""

from collections.abc import Mapping
from typing import Any

import orjson

EXTRA_BODY = "extra_body"
CHAT_TEMPLATE_KWARGS = "chat_template_kwargs"


def with_overrides(
    body: Mapping[str, Any], extra_body: Mapping[str, Any] | None, chat_template_kwargs: Mapping[str, Any] | None
) -> dict[str, Any]:
    """`body` with the config's and the metadata's additions: config < metadata < fields of the request itself."""
    metadata = body.get("metadata") or {}
    merged = {**(extra_body or {}), **json_object(metadata, EXTRA_BODY), **body}
    arguments = {
        **(merged.get(CHAT_TEMPLATE_KWARGS) or {}),
        **(chat_template_kwargs or {}),
        **json_object(metadata, CHAT_TEMPLATE_KWARGS),
    }
    if arguments:
        merged[CHAT_TEMPLATE_KWARGS] = arguments
    return without_metadata(merged, EXTRA_BODY, CHAT_TEMPLATE_KWARGS)


def without_metadata(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """`body` without those keys of its metadata, and without metadata if that leaves none."""
    metadata = body.get("metadata") or {}
    if metadata and not metadata.keys() & set(names):
        return dict(body)
    rest = {name: value for name, value in metadata.items() if name not in names}
    kept = {name: value for name, value in body.items() if name != "metadata"}
    return {**kept, "metadata": rest} if rest else kept


def json_object(metadata: Mapping[str, str], name: str) -> dict[str, Any]:
    """The JSON object that `metadata[name]` holds as text; empty if it is not there."""
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
