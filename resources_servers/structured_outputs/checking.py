# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker process: one text or value against one schema."""

from functools import lru_cache
from typing import Any, Literal, NamedTuple

from resources_servers.structured_outputs.formats import ParseError, SchemaType, parse
from resources_servers.structured_outputs.schemas import InvalidSchema, SchemaError, find_problem, make_strict

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


def check_text(text: str, schema_type: SchemaType, schema_str: str, coerces_xml: bool = True) -> Finding:
    """All of `text` must be in the format and fit the schema."""
    try:
        value = parse(text, schema_type, _make_strict(schema_str), coerces_xml=coerces_xml)
    except SchemaError as error:
        return Finding("schema_error", str(error))
    except ParseError as error:
        return Finding("parse_error", str(error))
    return check_value(value, schema_str)


def check_value(value: Any, schema_str: str) -> Finding:
    """A value must fit the schema."""
    try:
        problem = find_problem(value, _make_strict(schema_str))
    except SchemaError as error:
        return Finding("schema_error", str(error))
    except InvalidSchema as error:
        return Finding("validation_error", str(error))
    return Finding() if problem is None else Finding("validation_error", problem)


@lru_cache(maxsize=512)
def _make_strict(schema_str: str) -> Any:
    return make_strict(schema_str)
