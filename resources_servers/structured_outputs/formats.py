# SPDX-License-Identifier: Apache-2.0
"""Texts in five formats read as values.

XML and CSV know texts only, so their values become numbers, booleans and lists where the schema asks for these. What is
made to blow up when it is read is refused: entities in XML, aliases that multiply in YAML.
"""

import csv
import io
import json
import math
import tomllib
from typing import Any, Literal

SchemaType = Literal["json", "yaml", "xml", "toml", "csv"]
_MOST_YAML_NODES = 200_000
_DEEPEST = 200


class ParseError(Exception):
    """A text that is not in its format."""


def parse(text: str, schema_type: SchemaType, schema: Any, *, coerces_xml: bool = True) -> Any:
    """Return all of `text` as a value."""
    try:
        if schema_type == "json":
            return _read_json(text)
        if schema_type == "yaml":
            return _read_yaml(text)
        if schema_type == "toml":
            return tomllib.loads(text)
        if schema_type == "csv":
            return _read_csv(text, schema)
        value = _read_xml(text)
        return _coerce_xml(value, schema) if coerces_xml else value
    except ParseError:
        raise
    except RecursionError as error:
        raise ParseError(f"{schema_type}: nested too deeply") from error
    except (ValueError, csv.Error) as error:
        raise ParseError(f"{schema_type}: {str(error)[:500]}") from error


def _read_json(text: str) -> Any:
    def refuse(name: str) -> Any:
        raise ParseError(f"json: {name} is no number of JSON")

    return json.loads(text, parse_constant=refuse)


def _read_yaml(text: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        _measure(node, {}, 0)
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ParseError(f"yaml: {' '.join(str(error).split())[:500]}") from error
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    """The fast reader of YAML calls itself for every level, and crashes where there are too many."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise ParseError("yaml: nested too deeply")


def _measure(node: Any, sizes: dict[int, int], depth: int) -> int:
    """Return how many values a node stands for, its aliases included."""
    if depth > _DEEPEST:
        raise ParseError("yaml: nested too deeply, or an alias that holds itself")
    if node is None:
        return 0
    if id(node) not in sizes:
        value = node.value if isinstance(node.value, list) else []
        children = [child for one in value for child in (one if isinstance(one, tuple) else (one,))]
        sizes[id(node)] = 1 + sum(_measure(child, sizes, depth + 1) for child in children)
        if sizes[id(node)] > _MOST_YAML_NODES:
            raise ParseError(f"yaml: stands for more than {_MOST_YAML_NODES} values")
    return sizes[id(node)]


def _read_csv(text: str, schema: Any) -> list[dict[str, Any]]:
    """Return an object for every line below the header, with the values that the schema's items ask for."""
    items = _get_dict(schema, "items") or schema
    properties = _get_dict(items, "properties")
    return [
        {name: _coerce_cell(cell, _get_dict(properties, name).get("type", "string")) for name, cell in row.items()}
        for row in csv.DictReader(io.StringIO(text, newline=""))
    ]


def _coerce_cell(cell: Any, kinds: Any) -> Any:
    if not isinstance(kinds, list):
        return _coerce_text(cell, kinds) if cell else cell
    if not cell:
        return None if "null" in kinds else cell
    for kind in kinds:
        value = _coerce_text(cell, kind)
        if kind == "string" or value is not cell:
            return value
    return cell


def _coerce_text(text: Any, kind: Any) -> Any:
    """Return a text as a number or boolean, if the schema asks for one and the text is one."""
    if not isinstance(text, str):
        return text
    if kind == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            number = float(text)
            return number if math.isfinite(number) else text
    except ValueError:
        return text
    return text


def _read_xml(text: str) -> dict[str, Any]:
    """Return `{root: value}` with the rules of `xmltodict`: attributes as `@name`, text beside them as `#text`."""
    from xml.parsers import expat

    document: dict[str, Any] = {}
    # For each open element its name, its attributes and children, and its text.
    opened: list[tuple[str, dict[str, Any], list[str]]] = [("", document, [])]

    def refuse(*_: Any) -> None:
        raise ParseError("xml: entities are not allowed")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(opened) > _DEEPEST:
            raise ParseError("xml: nested too deeply")
        opened.append((tag, {f"@{name}": value for name, value in attributes.items()}, []))

    def end(tag: str) -> None:
        _, value, texts = opened.pop()
        text = "".join(texts).strip() or None
        if value and text:
            value["#text"] = text
        _add_child(opened[-1][1], tag, value or text)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = lambda data: opened[-1][2].append(data)
    try:
        parser.Parse(text.strip(), True)
    except expat.ExpatError as error:
        raise ParseError(f"xml: {error}") from error
    return document


def _add_child(parent: dict[str, Any], tag: str, value: Any) -> None:
    if tag not in parent:
        parent[tag] = value
    elif isinstance(parent[tag], list):
        parent[tag].append(value)
    else:
        parent[tag] = [parent[tag], value]


def _coerce_xml(value: Any, schema: Any) -> Any:
    """Return what `schema` asks for, if the value can be read so. A `type` that is a list asks for nothing."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "object" and isinstance(value, dict):
        properties = _get_dict(schema, "properties")
        return {name: _coerce_xml(one, properties.get(name)) for name, one in value.items()}
    if kind == "array":
        if value is None:
            return []
        # One element around all items: `<tags><tag>a</tag><tag>b</tag></tags>`.
        if isinstance(value, dict) and len(value) == 1:
            (value,) = value.values()
        items = value if isinstance(value, list) else [value]
        return [_coerce_xml(one, schema.get("items")) for one in items]
    if kind == "string" and value is None:
        return ""
    return _coerce_text(value, kind)


def _get_dict(schema: Any, key: Any) -> dict[str, Any]:
    value = schema.get(key) if isinstance(schema, dict) else None
    return value if isinstance(value, dict) else {}
