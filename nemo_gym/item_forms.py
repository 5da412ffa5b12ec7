# SPDX-License-Identifier: Apache-2.0
"""Decide whether two conversation items are the same: compare their forms, which leave out what changes in transit.

Ids, statuses, token ids and null fields do not count. Neither does the difference between a text and a list of one text
part, or between system and developer, or how a call's arguments are spaced. Reasoning does not count either: many
agents leave it out of the history.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel

__all__ = ["Form", "describe_form", "get_field", "is_from_model", "is_silent", "make_form"]

Form = tuple[Any, ...]
_IGNORED = frozenset({"id", "status", "annotations", "logprobs", "detail"})


def get_field(value: Any, name: str) -> Any:
    """Return a field of an object or a dict; None if it has none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def is_from_model(item: Any) -> bool:
    """Return whether the model wrote `item`."""
    kind = get_field(item, "type") or "message"
    if kind == "message":
        return (get_field(item, "role") or "assistant") == "assistant"
    return not kind.endswith("_output") and kind != "mcp_approval_response"


def make_form(item: Any) -> Form:
    """Return the form of `item`: what makes two items the same."""
    match get_field(item, "type") or "message":
        case "message":
            role = get_field(item, "role") or "assistant"
            return (
                "message",
                "system" if role == "developer" else role,
                _normalize_content(get_field(item, "content")),
            )
        case "function_call":
            arguments = _normalize_arguments(get_field(item, "arguments"))
            return ("function_call", get_field(item, "call_id"), get_field(item, "name"), arguments)
        case "function_call_output":
            return ("function_call_output", get_field(item, "call_id"), _normalize_content(get_field(item, "output")))
        case "reasoning":
            thoughts = get_field(item, "summary") or get_field(item, "content") or []
            return ("reasoning", "".join(get_field(thought, "text") or "" for thought in thoughts))
        case kind:
            return (kind, _normalize_part(item))


def is_silent(shape: Form) -> bool:
    """Return whether a history may omit an item of this form without changing what was said."""
    return shape[0] == "reasoning" or shape == ("message", "assistant", "")


def describe_form(shape: Form) -> str:
    """Describe an item of this form in one line for people."""
    return " ".join(part if isinstance(part, str) else orjson.dumps(part).decode() for part in shape[1:] if part)


def _normalize_content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [get_field(part, "text") for part in content]
    if all(isinstance(text, str) for text in texts):
        return "".join(texts)
    return [_normalize_part(part) for part in content]


def _normalize_arguments(text: Any) -> Any:
    # Frameworks that parse a call's arguments write them back in their own format.
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        return text


def _normalize_part(value: Any) -> Any:
    fields = value.model_dump() if isinstance(value, BaseModel) else value
    kept = {name: held for name, held in fields.items() if held is not None and name not in _IGNORED}
    return dict(sorted(kept.items()))
