# SPDX-License-Identifier: Apache-2.0
"""JSON schemas made strict, and values checked against them. No schema is fetched from elsewhere."""

import json
from typing import Any

# Their values are maps from a name to a schema, and no schemas themselves.
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DATA = ("const", "default")


class SchemaError(Exception):
    """A text that is not JSON, so it is no schema."""


class InvalidSchema(Exception):
    """JSON that is no JSON schema, or a schema that cannot be used."""


def make_strict(schema_str: str) -> Any:
    """Return the schema in `schema_str`, where every property is required and no other is allowed.

    Lists are left alone, so the branches of `anyOf`, `oneOf` and `allOf` stay as they are.
    """
    try:
        schema = json.loads(schema_str)
        return _make_strict(schema)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not valid JSON: {error}") from error


def find_problem(value: Any, schema: Any) -> str | None:
    """Return where and how `value` does not fit; None if it does. Formats, such as dates, are not checked."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError as Invalid, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        # Whatever draft `$schema` names: the dialect is that of OpenAPI 3.1.
        Draft202012Validator.check_schema(schema)
        # An empty registry: nothing is fetched.
        error = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
    except Invalid as invalid:
        raise InvalidSchema(f"the schema is not valid at {invalid.json_path}: {invalid.message}") from invalid
    except Unresolvable as unresolvable:
        raise InvalidSchema(f"the schema refers to {unresolvable.ref!r}, which it does not hold") from unresolvable
    except RecursionError as too_deep:
        raise InvalidSchema("the schema is nested too deeply or refers to itself without end") from too_deep
    except TypeError:
        return "$: some key is not a text"
    return None if error is None else f"{error.json_path}: {error.message}"


def _make_strict(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            strict[key] = {name: _make_strict(one) for name, one in value.items()}
        else:
            strict[key] = value if key in _DATA else _make_strict(value)
    if isinstance(schema.get("properties"), dict):
        strict["required"] = list(schema["properties"])
        strict["additionalProperties"] = False
    return strict
