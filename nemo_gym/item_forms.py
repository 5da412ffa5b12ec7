# SPDX-License-Identifier: Apache-2.0
"""When two items of a conversation are the same: their forms, without what changes on the way back to the model.

Ids, statuses, token ids, null fields, the difference between a text and a list of one text part, that between system
and developer, and how the arguments of a call are spaced do not count. Neither does reasoning, which many agents leave
out of the history.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel

__all__ = ["Form", "describe_form", "get_field", "is_from_model", "is_silent", "make_form"]

Form = tuple[Any, ...]
_IGNORED = frozenset({"id", "status", "annotations", "logprobs", "detail"})


def get_field(value: Any, name: str) -> Any:
    """Return one field of an object or a dict; None where it has none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def is_from_model(item: Any) -> bool:
    """Return whether the model wrote `item`."""
    kind = get_field(item, "type") or "message"
    if kind == "message":
        return (get_field(item, "role") or "assistant") == "assistant"
    return not kind.endswith("_output") and kind != "mcp_approval_response"


def make_form(item: Any) -> Form:
    """Return what makes `item` the item it is."""
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
    """Return whether an item of this form may be missing from a history without changing what was said."""
    return shape[0] == "reasoning" or shape == ("message", "assistant", "")


def describe_form(shape: Form) -> str:
    """Return an item of this form as a line for people."""
    return " ".join(part if isinstance(part, str) else orjson.dumps(part).decode() for part in shape[1:] if part)


def _normalize_content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [get_field(part, "text") for part in content]
    if all(isinstance(text, str) for text in texts):
        return "".join(texts)
    return [_normalize_part(part) for part in content]


def _normalize_arguments(text: Any) -> Any:
    # Frameworks that parse the arguments of a call write them again in their own way.
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        return text


def _normalize_part(value: Any) -> Any:
    fields = value.model_dump() if isinstance(value, BaseModel) else value
    kept = {name: held for name, held in fields.items() if held is not None and name not in _IGNORED}
    return dict(sorted(kept.items()))
