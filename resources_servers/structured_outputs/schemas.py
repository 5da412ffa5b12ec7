# SPDX-License-Identifier: Apache-2.0
"""JSON schemas made strict, and values checked against them. No schema is fetched from elsewhere."""

import json
from collections.abc import Mapping
from typing import Any

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_BELOW_LISTS = ("items", "prefixItems")
_BELOW_ONES = ("items", "additionalItems", "contains", "unevaluatedItems")
_BELOW_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class SchemaError(Exception):
    """A text that is no JSON schema, or one that cannot be used."""


def make_strict(schema_str: str) -> Any:
    """Return the schema in `schema_str`, where every property is required and no other is allowed."""
    try:
        schema = json.loads(schema_str)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not valid JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"a schema is an object, not a {type(schema).__name__}")
    try:
        strict = _strict(schema, schema)
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error
    _check(strict)
    return strict


def find_problem(value: Any, schema: Any) -> str | None:
    """Return where and how `value` does not fit; None if it does."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(_validator(schema).iter_errors(value))
    except Unresolvable as error:
        raise SchemaError(f"the schema refers to {error.ref!r}, which it does not hold") from error
    except RecursionError as error:
        raise SchemaError("the schema refers to itself without end") from error
    if error is None:
        return None
    message = error.message if len(error.message) <= 500 else f"{error.message[:500]}…"
    return f"{error.json_path}: {message}"


def resolved(schema: Any, root: Any) -> Mapping[str, Any]:
    """Return the schema that a local `$ref` leads to, or `schema` itself; empty if it says nothing."""
    for _ in range(20):
        if not isinstance(schema, dict):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#"):
            return schema
        target = root
        for step in ref.removeprefix("#").strip("/").split("/") if ref != "#" else ():
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        schema = target
    return {}


def list_types(schema: Any, root: Any) -> set[str]:
    """Return the types that a value may have by `schema`; empty for any."""
    known = resolved(schema, root)
    declared = known.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {one for one in declared if isinstance(one, str)}
    if "properties" in known:
        return {"object"}
    if "items" in known:
        return {"array"}
    values = [known["const"]] if "const" in known else known.get("enum", ())
    if values:
        return {_NAMES.get(type(value), "string") for value in values}
    return {name for key in ("anyOf", "oneOf") for option in known.get(key, ()) for name in list_types(option, root)}


_NAMES = {bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array"}


def _strict(schema: Any, root: Any, *, is_part: bool = False) -> Any:
    """`is_part`: it shares its value with others, one of which says that there are no further properties."""
    if not isinstance(schema, dict):
        return schema
    target = resolved(schema, root)
    names_properties = isinstance(target.get("properties"), dict) or "allOf" in target
    result = {key: _strict_below(key, value, root) for key, value in schema.items()}
    for key in _IN_PLACE_LISTS:
        if isinstance(schema.get(key), list):
            shares = is_part or names_properties
            result[key] = [_strict(one, root, is_part=shares) for one in schema[key]]
    for key in ("then", "else"):
        if key in schema:
            result[key] = _strict(schema[key], root, is_part=True)
    if isinstance(schema.get("properties"), dict):
        result["required"] = list(schema["properties"])
    if names_properties and not is_part:
        # Properties that a part of the schema names are not additional ones.
        has_parts = any(key in schema for key in (*_IN_PLACE_LISTS, "if", "dependentSchemas", "$ref"))
        result.pop("additionalProperties", None)
        result["unevaluatedProperties" if has_parts else "additionalProperties"] = False
    return result


def _strict_below(key: str, value: Any, root: Any) -> Any:
    """Return the schemas of values within the value."""
    if key in _BELOW_LISTS and isinstance(value, list):
        return [_strict(one, root) for one in value]
    if key in _BELOW_ONES:
        return _strict(value, root)
    if key in _BELOW_MAPS and isinstance(value, dict):
        # A definition may be a part of several objects; it is closed where it is referred to.
        is_part = key in ("$defs", "definitions", "dependentSchemas")
        return {name: _strict(one, root, is_part=is_part) for name, one in value.items()}
    return value


def _check(schema: Any) -> None:
    from jsonschema.exceptions import SchemaError as Invalid

    try:
        _validator_class(schema).check_schema(schema)
    except Invalid as error:
        raise SchemaError(f"the schema is not valid at {error.json_path}: {error.message[:500]}") from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


def _validator(schema: Any) -> Any:
    from referencing import Registry

    return _validator_class(schema)(schema, registry=Registry())  # an empty registry: nothing is fetched


def _validator_class(schema: Any) -> Any:
    from jsonschema import Draft202012Validator, validators

    # Older drafts do not know `unevaluatedProperties`, and the newest reads what they say.
    found = validators.validator_for(schema, default=Draft202012Validator) if isinstance(schema, dict) else None
    has_tuples = isinstance(schema, dict) and isinstance(schema.get("items"), list)
    return found if found is not None and has_tuples else Draft202012Validator
