# SPDX-License-Identifier: Apache-2.0
"""Whether calls fit the JSON schemas of their tools, for the keywords that tools use; others are not looked at."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_gym.grading import FunctionCall

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


def all_calls_fit(calls: Sequence[FunctionCall], tools: Sequence[Any]) -> bool:
    """Return whether there are calls, all of tools that were offered, with arguments of the right types."""
    plain = [tool if isinstance(tool, dict) else tool.model_dump() for tool in tools]
    offered = {tool["name"]: tool.get("parameters") for tool in plain if tool.get("type") == "function"}
    return bool(calls) and all(
        call.name in offered and call.arguments is not None and fits(call.arguments, offered[call.name])
        for call in calls
    )


def fits(value: Any, schema: Any) -> bool:
    """Return whether `value` is what `schema` asks for: type, enum, const, properties, required, items, bounds."""
    if not isinstance(schema, Mapping):
        return schema is not False
    return _has_type(value, schema.get("type")) and _is_allowed(value, schema) and _fits_below(value, schema)


def _has_type(value: Any, types: Any) -> bool:
    if types is None:
        return True
    named = types if isinstance(types, list) else [types]
    return any(name in _TYPES and _TYPES[name](value) for name in named)


def _is_allowed(value: Any, schema: Mapping[str, Any]) -> bool:
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if _TYPES["number"](value):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True


def _fits_below(value: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, list):
        return all(fits(one, schema.get("items", True)) for one in value)
    if not isinstance(value, dict):
        return True
    known, others = schema.get("properties") or {}, schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required") or ()):
        return False
    return all(fits(one, known.get(name, others)) for name, one in value.items())
