# SPDX-License-Identifier: Apache-2.0
"""Write the example rows of this environment: always the same ones.

A row asks for one term of a list of synonyms that is drawn and shuffled anew for it. `solution` is what a model that
makes no mistake does with a row.
"""

import json
import random
from pathlib import Path
from typing import Any

from resources_servers.example_multi_step.app import synonym_value

HERE = Path(__file__).parent
ROWS = 5
LINES_OF_A_PROMPT = 193
SEED = 0

INSTRUCTIONS = """\
Below is a list of terms and their synonyms. You are asked for the synonym values of one term.
- Look up the value of each synonym of that term with get_synonym_value, in the order of the list.
- The term is not a synonym of itself: do not look up its own value.
- When you have all values, hand them in with one call of extract_synonym_values, in the order of the list.
"""


def rows() -> list[dict[str, Any]]:
    """The example rows."""
    draw = random.Random(SEED)
    known = synonyms()
    return [_row(number, term, known, draw) for number, term in enumerate(draw.sample(_clear_terms(known), ROWS))]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """The turns of a model that solves `row`: tool calls, then what it says in the end."""
    lookups = [("get_synonym_value", {"synonym": synonym}) for synonym in row["expected_synonyms"]]
    values = row["expected_synonym_values"]
    said = f"The synonym values of {row['minefield_label']} are {', '.join(map(str, values))}."
    return [*lookups, ("extract_synonym_values", {"synonym_values": values}), said]


def synonyms() -> dict[str, list[str]]:
    """All terms with their synonyms."""
    lines = [line for line in (HERE / "synonyms.txt").read_text().splitlines() if not line.startswith("#")]
    return {term: listed.split(", ") for term, listed in (line.split(": ") for line in lines)}


def _clear_terms(known: dict[str, list[str]]) -> list[str]:
    """The terms whose values cannot be mistaken for each other."""
    values = {term: [synonym_value(word) for word in (term, *listed)] for term, listed in known.items()}
    return [term for term, found in values.items() if len(set(found)) == len(found)]


def _row(number: int, term: str, known: dict[str, list[str]], draw: random.Random) -> dict[str, Any]:
    asked = [(term, synonym) for synonym in known[term]]
    others = [(other, synonym) for other, listed in known.items() for synonym in listed if other != term]
    pairs = asked + draw.sample(others, LINES_OF_A_PROMPT - len(asked))
    draw.shuffle(pairs)
    expected = [synonym for other, synonym in pairs if other == term]
    return {
        "id": number,
        "responses_create_params": _create_params(term, pairs),
        "expected_synonyms": expected,
        "expected_synonym_values": [synonym_value(synonym) for synonym in expected],
        "minefield_label": term,
        "minefield_label_value": synonym_value(term),
    }


def _create_params(term: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    listed = "\n".join(f"The term '{a}' has a synonym '{b}'." for a, b in pairs)
    return {
        "input": [
            {"role": "system", "content": f"{INSTRUCTIONS}\n{listed}"},
            {"role": "user", "content": f"What are the synonym values of the term '{term}'?"},
        ],
        "tools": [
            _tool(
                "get_synonym_value",
                "Get the value of a synonym.",
                "synonym",
                {"type": "string", "description": "The synonym to look up."},
            ),
            _tool(
                "extract_synonym_values",
                "Hand in the values of all synonyms of the term, in the order of the list.",
                "synonym_values",
                {"type": "array", "items": {"type": "integer"}, "description": "The values in order."},
            ),
        ],
        "parallel_tool_calls": False,
    }


def _tool(name: str, description: str, argument: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": {argument: schema},
            "required": [argument],
            "additionalProperties": False,
        },
        "strict": True,
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
