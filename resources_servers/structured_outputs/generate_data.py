# SPDX-License-Identifier: Apache-2.0
"""Write the requests of this environment: always the same ones.

Each gives some facts and a schema, and asks for the facts in one of five formats, as text or as the argument of a tool.
Formats take turns, so that the first few rows are a fair sample of all. `solution` is a reply that fits.
"""

import csv
import io
import json
import random
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
ROUNDS = 16
FORMATS = ("json", "tool_call", "yaml", "xml", "csv", "toml")
NAMES = ("Ada", "Bela", "Chen", "Dara", "Emil", "Farah", "Goran", "Hana")
TOWNS = ("Oslo", "Quito", "Hanoi", "Accra", "Perth", "Turin")
TOOL_NAME = "save"
PAYLOAD_KEY = "record"

ENTRY_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "town": {"type": "string"},
        "is_member": {"type": "boolean"},
    },
}
LIST_SCHEMA = {"type": "array", "items": ENTRY_SCHEMA, "minItems": 1}
CLUB_SCHEMA = {
    "type": "object",
    "properties": {
        "club": {"type": "string"},
        "founded": {"type": "integer"},
        "members": {"type": "array", "items": ENTRY_SCHEMA},
    },
}
# In XML the schema names the root element too.
RECORD_SCHEMA = {"type": "object", "properties": {"record": CLUB_SCHEMA}}


def values() -> list[tuple[str, Any]]:
    """For every row its format and the value that it asks for."""
    draw = random.Random(SEED)
    made: list[tuple[str, Any]] = []
    for _ in range(ROUNDS):
        for kind in FORMATS:
            people = [_person(draw, name) for name in draw.sample(NAMES, draw.randint(2, 3))]
            club = {"club": f"{draw.choice(TOWNS)} Chess", "founded": draw.randint(1900, 2020), "members": people}
            made.append((kind, people if kind == "csv" else club))
    return made


def all_rows() -> list[dict[str, Any]]:
    """Return one row for every value."""
    return [_row(kind, value) for kind, value in values()]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[Any]:
    """Return the turns of a model that answers `row`."""
    kind, value = next(one for one in values() if _row(*one) == row)
    if kind == "tool_call":
        return [(TOOL_NAME, {PAYLOAD_KEY: value}), "It is saved."]
    return [written(kind, value)]


def written(kind: str, value: Any) -> str:
    """Return `value` in a format."""
    if kind == "csv":
        lines = io.StringIO()
        table = csv.DictWriter(lines, list(value[0]))
        table.writeheader()
        table.writerows(
            {key: str(one).lower() if isinstance(one, bool) else one for key, one in row.items()} for row in value
        )
        return lines.getvalue()
    if kind == "xml":
        members = "".join(f"<member>{_xml(person)}</member>" for person in value["members"])
        rest = _xml({key: one for key, one in value.items() if key != "members"})
        return f"<record>{rest}<members>{members}</members></record>"
    if kind == "toml":
        head = [f"{key} = {json.dumps(one)}" for key, one in value.items() if key != "members"]
        for person in value["members"]:
            head += ["[[members]]", *(f"{key} = {json.dumps(one)}" for key, one in person.items())]
        return "\n".join(head)
    if kind == "yaml":
        head = [f"{key}: {json.dumps(one)}" for key, one in value.items() if key != "members"]
        return "\n".join([*head, "members:", *(f"- {json.dumps(person)}" for person in value["members"])])
    return json.dumps(value)


def _person(draw: random.Random, name: str) -> dict[str, Any]:
    return {"name": name, "age": draw.randint(18, 80), "town": draw.choice(TOWNS), "is_member": draw.random() < 0.5}


def _xml(fields: dict[str, Any]) -> str:
    return "".join(
        f"<{key}>{escape(str(one).lower() if isinstance(one, bool) else str(one))}</{key}>"
        for key, one in fields.items()
    )


def _facts(value: Any) -> str:
    people = value if isinstance(value, list) else value["members"]
    told = [
        f"{one['name']} is {one['age']}, lives in {one['town']} and is {'' if one['is_member'] else 'not '}a member."
        for one in people
    ]
    club = [] if isinstance(value, list) else [f"{value['club']} was founded in {value['founded']}."]
    return " ".join([*club, *told])


def _row(kind: str, value: Any) -> dict[str, Any]:
    schema = {"csv": LIST_SCHEMA, "xml": RECORD_SCHEMA}.get(kind, CLUB_SCHEMA)
    is_call = kind == "tool_call"
    how = f"Call the tool `{TOOL_NAME}` with it." if is_call else "Reply with it alone, and no code block around it."
    shape = "one line of names, then one line for each person" if kind == "csv" else "all properties are required"
    asked = (
        f"{_facts(value)}\n\nSay this in {'JSON' if is_call else kind.upper()} that fits the following JSON schema "
        f"({shape}). {how}\n\n{json.dumps(schema)}"
    )
    params: dict[str, Any] = {"input": [{"role": "user", "content": asked}]}
    if is_call:
        parameters = {"type": "object", "properties": {PAYLOAD_KEY: schema}, "required": [PAYLOAD_KEY]}
        params["tools"] = [
            {
                "type": "function",
                "name": TOOL_NAME,
                "description": "Save it.",
                "parameters": parameters,
                "strict": False,
            }
        ]
    return {
        "responses_create_params": params,
        "schema_str": json.dumps(schema),
        "schema_type": "json" if is_call else kind,
        "response_mode": "tool_call" if is_call else "text",
        "tool_name": TOOL_NAME if is_call else None,
        "tool_payload_key": PAYLOAD_KEY if is_call else None,
        "problem_type": "facts_to_record",
        "schema_repr": "json_schema",
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
