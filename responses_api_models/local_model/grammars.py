# SPDX-License-Identifier: Apache-2.0
"""What the model is allowed to write, in the grammar language of llama.cpp's guidance: JSON by a schema, tool calls.

The engine silently ignores a schema that it cannot enforce, so each is tried first: with the odds forced towards a
token that no JSON starts with, only a grammar that works gives anything else. Verdicts are kept.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import HTTPException

from responses_api_models.local_model.engine import Engine

CALL_START = "<tool_call>"
CALL_END = "</tool_call>"

_HEAD = "%llguidance {}"
_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_NO_JSON = "Z"
_FORCED = 1e6
_PLACES_OF_PARTS = ("properties", "$defs", "definitions")
_BAD_REQUEST = 400


def write_json_grammar(schema: Mapping[str, Any]) -> str:
    """Return a grammar that allows nothing but a JSON value of `schema`."""
    return f"{_HEAD}\nstart: {_write_json_rule(schema)}"


def write_call_prefix(name: str) -> str:
    """Return how a call of the tool `name` begins, up to its arguments."""
    return f'{CALL_START}{{"name": {json.dumps(name)}, "arguments": '


CALL_SUFFIX = f"}}{CALL_END}"


def write_tools_grammar(
    tools: Mapping[str, Mapping[str, Any]], *, required: bool, text_schema: Mapping[str, Any] | None
) -> str:
    """Return a grammar for one call of one of `tools` (schemas by name); unless `required`, text before or instead.

    With a `text_schema` the text is JSON, and there is either that or a call.
    """
    start = "call" if required else "text | call" if text_schema is not None else "TEXT? call?"
    lines = [_HEAD, f"start: {start}", f"call: {' | '.join(f'call_{n}' for n in range(len(tools)))}"]
    for number, (name, schema) in enumerate(tools.items()):
        words = json.dumps(write_call_prefix(name)), f"arguments_{number}", json.dumps(CALL_SUFFIX)
        lines += [f"call_{number}: {' '.join(words)}", f"arguments_{number}: {_write_json_rule(narrow_schema(schema))}"]
    if text_schema is not None and not required:
        lines.append(f"text: {_write_json_rule(text_schema)}")
    elif not required:
        lines.append(rf"TEXT: /(.|\n)+/ & ~/(.|\n)*{CALL_START}(.|\n)*/")
    return "\n".join(lines)


def _write_json_rule(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': _ONE_LINE})}"


def narrow_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schema` without room for properties that it does not name, wherever it leaves that open."""
    plain = dict(schema)
    if isinstance(plain.get("properties"), Mapping):
        plain["properties"] = {
            name: narrow_schema(part) if isinstance(part, Mapping) else part
            for name, part in plain["properties"].items()
        }
        if not plain.keys() & {"allOf", "anyOf", "oneOf", "$ref", "patternProperties"}:
            plain.setdefault("additionalProperties", False)
    if isinstance(plain.get("items"), Mapping):
        plain["items"] = narrow_schema(plain["items"])
    return plain


async def require_support(engine: Engine, schema: Mapping[str, Any], what: str) -> None:
    """Refuse a request whose `schema` the engine cannot enforce, and name the part of it that is to blame."""
    if await _is_enforced(engine, schema):
        return
    path, part = await _find_culprit(engine, schema, schema, "")
    raise HTTPException(
        _BAD_REQUEST,
        f"the JSON schema of {what} cannot be enforced by llama.cpp: it does not support {path or 'the schema'} = "
        f"{json.dumps(part)[:300]}. hint: say it in keywords that it knows (type, properties, required, enum, items, "
        "anyOf, pattern without look-around, minimum, maximum, minLength, maxLength, minItems, maxItems), or leave it "
        "out",
    )


async def _find_culprit(
    engine: Engine, part: Mapping[str, Any], whole: Mapping[str, Any], path: str
) -> tuple[str, Mapping[str, Any]]:
    """Return the smallest part that fails by itself. References need the definitions of the whole."""
    shared = {name: whole[name] for name in ("$defs", "definitions") if name in whole}
    for name, inner in _list_parts(part):
        if not await _is_enforced(engine, {**shared, **inner}):
            return await _find_culprit(engine, inner, whole, f"{path}.{name}" if path else name)
    return path, part


def _list_parts(schema: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    found = [
        (f"{place}.{name}", part)
        for place in _PLACES_OF_PARTS
        if isinstance(schema.get(place), Mapping)
        for name, part in schema[place].items()
    ]
    found += [
        (f"{place}.{number}", part)
        for place in ("anyOf", "oneOf", "allOf", "prefixItems")
        for number, part in enumerate(schema.get(place) or ())
    ]
    found += [(place, schema[place]) for place in ("items", "additionalProperties") if place in schema]
    return [(name, part) for name, part in found if isinstance(part, Mapping)]


async def _is_enforced(engine: Engine, schema: Mapping[str, Any]) -> bool:
    grammar = write_json_grammar(schema)
    known = engine.supported_grammars.get(grammar)
    if known is None:
        no_json = await engine.tokenize(_NO_JSON)
        made = await engine.generate(
            {
                "prompt": no_json,
                "grammar": grammar,
                "n_predict": 1,
                "temperature": 0,
                "logit_bias": [[no_json[0], _FORCED]],
            }
        )
        known = engine.supported_grammars[grammar] = _NO_JSON not in made.text
    return known
