# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker process: one text or value against one schema."""

from functools import lru_cache
from typing import Any, Literal, NamedTuple

from resources_servers.structured_outputs.formats import ParseError, SchemaType, parse
from resources_servers.structured_outputs.schemas import SchemaError, find_problem, list_types, make_strict

ErrorType = Literal[
    "empty_response",
    "schema_error",
    "parse_error",
    "validation_error",
    "missing_tool_call",
    "multiple_tool_calls",
    "wrong_tool_name",
    "tool_arguments_parse_error",
    "missing_tool_payload_key",
    "api_error",
]


class Finding(NamedTuple):
    """What is wrong; nothing, if both are None."""

    error_type: ErrorType | None = None
    error_message: str | None = None


def check_text(text: str, schema_type: SchemaType, schema_str: str) -> Finding:
    """All of `text` must be in the format and fit the schema."""
    try:
        schema = _strict(schema_str)
        problem = find_problem(parse(text, schema_type, schema), schema)
    except SchemaError as error:
        return Finding("schema_error", str(error))
    except ParseError as error:
        return Finding("parse_error", str(error))
    return Finding() if problem is None else Finding("validation_error", problem)


def check_value(value: Any, schema_type: SchemaType, schema_str: str) -> Finding:
    """A value must fit the schema; a text that stands for one is read first."""
    try:
        schema = _strict(schema_str)
        is_text = isinstance(value, str) and (schema_type != "json" or "string" not in list_types(schema, schema))
        if is_text:
            return check_text(value, schema_type, schema_str)
        problem = find_problem(value, schema)
    except SchemaError as error:
        return Finding("schema_error", str(error))
    return Finding() if problem is None else Finding("validation_error", problem)


@lru_cache(maxsize=512)
def _strict(schema_str: str) -> Any:
    return make_strict(schema_str)
