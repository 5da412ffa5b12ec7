# SPDX-License-Identifier: Apache-2.0
"""Texts in five formats read as plain JSON values.

XML and CSV know texts only, so their values become numbers, booleans and lists where the schema asks for these. What is
made to blow up when it is read is refused: entities in XML, aliases that multiply in YAML.
"""

import csv
import datetime
import io
import json
import math
import tomllib
from collections.abc import Mapping
from typing import Any, Literal

from resources_servers.structured_outputs.schemas import list_types, resolved

SchemaType = Literal["json", "yaml", "xml", "toml", "csv"]
_MOST_YAML_NODES = 200_000
_DEEPEST = 200


class ParseError(Exception):
    """A text that is not in its format."""


def parse(text: str, schema_type: SchemaType, schema: Any) -> Any:
    """Return all of `text` as a value."""
    try:
        return _READERS[schema_type](text, schema)
    except ParseError:
        raise
    except RecursionError as error:
        raise ParseError(f"{schema_type}: nested too deeply") from error
    except (ValueError, csv.Error) as error:
        raise ParseError(f"{schema_type}: {str(error)[:500]}") from error


def _json(text: str, schema: Any) -> Any:
    def refuse(name: str) -> Any:
        raise ParseError(f"json: {name} is no number of JSON")

    return json.loads(text, parse_constant=refuse)


def _toml(text: str, schema: Any) -> Any:
    return _plain(tomllib.loads(text), 0)


def _yaml(text: str, schema: Any) -> Any:
    import yaml

    loader = _yaml_loader(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        _measure(node, {}, 0)
        return None if node is None else _plain(loader.construct_document(node), 0)
    except yaml.YAMLError as error:
        raise ParseError(f"yaml: {' '.join(str(error).split())[:500]}") from error
    finally:
        loader.dispose()


def _yaml_loader(text: str) -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Dates stay texts, as they are in JSON."""

        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader(text)


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


def _plain(value: Any, depth: int) -> Any:
    """As JSON would hold it: keys and dates as texts."""
    if depth > _DEEPEST:
        raise ParseError("nested too deeply")
    if isinstance(value, dict):
        return {_key(key): _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise ParseError(f"{value} is no number of JSON")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ParseError(f"a value of type {type(value).__name__} has no counterpart in JSON")


def _key(key: Any) -> str:
    if isinstance(key, bool) or key is None:
        return json.dumps(key)
    if isinstance(key, str | int | float):
        return str(key)
    raise ParseError("keys must be texts")


def _csv(text: str, schema: Any) -> Any:
    """Return a header and rows: a list of objects, or what the schema has around one."""
    rows = list(csv.DictReader(io.StringIO(text.strip("\r\n"), newline=""), strict=True, restkey=""))
    if any("" in row or None in row.values() for row in rows):
        raise ParseError("csv: a row has more or fewer fields than the header")
    root = resolved(schema, schema)
    properties = root.get("properties")
    if "object" in list_types(root, schema) and isinstance(properties, dict):
        lists = [name for name, one in properties.items() if "array" in list_types(one, schema)]
        if len(lists) == 1 and len(properties) == 1:
            return {
                lists[0]: [_coerced(row, resolved(properties[lists[0]], schema).get("items"), schema) for row in rows]
            }
        if len(rows) != 1:
            raise ParseError(f"csv: the schema wants one object, and there are {len(rows)} rows")
        return _coerced(rows[0], root, schema)
    return [_coerced(row, root.get("items"), schema) for row in rows]


def _xml(text: str, schema: Any) -> Any:
    from xml.etree import ElementTree
    from xml.parsers import expat

    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise ParseError("xml: a document type declaration is not allowed")

    open_elements = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal open_elements
        open_elements += 1
        if open_elements > _DEEPEST:
            raise ParseError("xml: nested too deeply")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal open_elements
        open_elements -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    try:
        parser.Parse(text.strip(), True)
    except expat.ExpatError as error:
        raise ParseError(f"xml: {error}") from error
    return _of_element(builder.close(), schema, schema)


def _of_element(element: Any, schema: Any, root: Any) -> Any:
    """An element is an object of its attributes and children, or its text; by the schema also a list."""
    kinds = list_types(schema, root)
    known = resolved(schema, root)
    if "array" in kinds:
        return [_of_element(child, known.get("items"), root) for child in element]
    properties = known.get("properties")
    if len(element) == 0 and not element.attrib and "object" not in kinds:
        return _coerced(element.text or "", schema, root)
    groups: dict[str, list[Any]] = {}
    for child in element:
        groups.setdefault(child.tag, []).append(child)
    known_properties = properties if isinstance(properties, dict) else {}
    value = {name: _coerced(text, known_properties.get(name), root) for name, text in element.attrib.items()}
    for name, children in groups.items():
        value[name] = _of_children(children, known_properties.get(name), root)
    return value


def _of_children(children: list[Any], schema: Any, root: Any) -> Any:
    """Elements of one name: a list if there are several, or if the schema asks for one."""
    if "array" not in list_types(schema, root):
        values = [_of_element(child, schema, root) for child in children]
        return values[0] if len(values) == 1 else values
    items = resolved(schema, root).get("items")
    only = children[0]
    if len(children) == 1 and _wraps_items(only, items, root):
        return _of_element(only, schema, root)
    return [_of_element(child, items, root) for child in children]


def _wraps_items(element: Any, items: Any, root: Any) -> bool:
    """Return whether a single element holds the items of a list, rather than being one of them."""
    if len(element) == 0:
        return not (element.text or "").strip() and not element.attrib
    properties = resolved(items, root).get("properties")
    if isinstance(properties, dict):
        return not any(child.tag in properties for child in element)
    return True


def _coerced(value: Any, schema: Any, root: Any) -> Any:
    """Return a text as what the schema asks for, if it can be read so; texts in objects too."""
    known = resolved(schema, root)
    if isinstance(value, dict):
        properties = known.get("properties")
        within: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
        return {name: _coerced(one, within.get(name), root) for name, one in value.items()}
    kinds = list_types(schema, root)
    text = value.strip()
    if "null" in kinds and text.lower() in ("", "null"):
        return None
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind, read in (("integer", int), ("number", float)):
        if kind in kinds:
            try:
                number: int | float = read(text)
            except ValueError:
                continue
            if math.isfinite(number):
                return number
    if kinds & {"array", "object"} and text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return value
    return value


_READERS = {"json": _json, "yaml": _yaml, "xml": _xml, "toml": _toml, "csv": _csv}
