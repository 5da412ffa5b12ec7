# SPDX-License-Identifier: Apache-2.0
"""From the body of an OpenAPI operation to the input schema of a tool, which stands alone and describes an object."""

from collections.abc import Iterator, Mapping
from typing import Any

_COMPONENTS = "#/components/schemas/"
_DEFS = "#/$defs/"


class NotAnObject(Exception):
    """A body that is not a JSON object, the only thing that a tool can be given."""


def build_object_schema(body: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` with what it refers to in `components` inside of it; raises NotAnObject."""
    top = _strip_null(body, components)
    kind = top.get("type")
    choices = [choice for key in ("anyOf", "oneOf", "allOf") for choice in top.get(key, [])]
    if kind is None and choices:
        for choice in choices:
            if _resolve(choice, components).get("type", "object") != "object":
                raise NotAnObject(_summarize(choice))
    elif kind not in (None, "object"):
        raise NotAnObject(_summarize(top))
    schema: dict[str, Any] = {"type": "object", **_relocate(top)}
    if needed := _find_reachable(top, components):
        schema["$defs"] = {name: _relocate(components[name]) for name in sorted(needed)}
    return schema


def _strip_null(body: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the body itself where the body may be left out."""
    choices = body.get("anyOf", [])
    present = [choice for choice in choices if choice.get("type") != "null"]
    if len(present) == 1 and len(choices) > 1:
        return _resolve(present[0], components)
    return _resolve(body if not choices else {**body, "anyOf": present}, components)


def _resolve(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    target: Mapping[str, Any] = components[reference.removeprefix(_COMPONENTS)]
    return target


def _summarize(schema: Mapping[str, Any]) -> str:
    return str(schema.get("type") or schema.get("title") or dict(schema))


def _relocate(node: Any) -> Any:
    """Return `node` with references that point into its own `$defs`."""
    if isinstance(node, Mapping):
        return {key: _relocate(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_relocate(item) for item in node]
    # Not only under `$ref`: a discriminator maps names to references as well.
    if isinstance(node, str) and node.startswith(_COMPONENTS):
        return node.replace(_COMPONENTS, _DEFS)
    return node


def _find_reachable(node: Any, components: Mapping[str, Any]) -> set[str]:
    """Return the names of the components that `node` needs, directly or through others."""
    found: set[str] = set()
    open_nodes = [node]
    while open_nodes:
        for name in _find_references(open_nodes.pop()):
            if name not in found:
                found.add(name)
                open_nodes.append(components[name])
    return found


def _find_references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for value in node.values():
            yield from _find_references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _find_references(item)
    elif isinstance(node, str) and node.startswith(_COMPONENTS):
        yield node.removeprefix(_COMPONENTS)
