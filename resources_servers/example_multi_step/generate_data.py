# SPDX-License-Identifier: Apache-2.0
"""Write the example, train and validation rows of this environment: always the same ones.

A row asks for one term of a list of synonyms that is drawn and shuffled anew for it. `solution` is what a model that
makes no mistake does with a row.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

from resources_servers.example_multi_step.app import synonym_value

HERE = Path(__file__).parent
SIZES = {"example": 5, "train": 100, "validation": 20}
"""How many rows each set has."""
LINES_OF_A_PROMPT = 193
SEED = 0

INSTRUCTIONS = """\
Below is a list of terms and their synonyms. You are asked for the synonym values of one term.
- Look up the value of each synonym of that term with get_synonym_value, in the order of the list.
- The term is not a synonym of itself: do not look up its own value.
- When you have all values, hand them in with one call of extract_synonym_values, in the order of the list.
"""


def split_rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a set. Train begins with the example rows; no term of validation is asked for in train."""
    draw = random.Random(SEED)
    known = synonyms()
    terms = _clear_terms(known)
    asked = draw.sample(terms, SIZES["example"])
    examples = [_row(number, term, known, draw) for number, term in enumerate(asked)]
    held_out = [term for term in terms if term not in asked][::6]
    if split == "validation":
        return _random_rows(range(SIZES["train"], SIZES["train"] + SIZES["validation"]), held_out)
    others = range(len(examples), SIZES[split])
    return examples + _random_rows(others, [term for term in terms if term not in held_out])


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return split_rows("example")


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """Return the turns of a model that solves `row`: tool calls, then what it says in the end."""
    lookups = [("get_synonym_value", {"synonym": synonym}) for synonym in row["expected_synonyms"]]
    values = row["expected_synonym_values"]
    said = f"The synonym values of {row['minefield_label']} are {', '.join(map(str, values))}."
    return [*lookups, ("extract_synonym_values", {"synonym_values": values}), said]


def synonyms() -> dict[str, list[str]]:
    """Return all terms with their synonyms."""
    lines = [line for line in (HERE / "synonyms.txt").read_text().splitlines() if not line.startswith("#")]
    return {term: listed.split(", ") for term, listed in (line.split(": ") for line in lines)}


def _clear_terms(known: dict[str, list[str]]) -> list[str]:
    """Return the terms whose values cannot be mistaken for each other."""
    values = {term: [synonym_value(word) for word in (term, *listed)] for term, listed in known.items()}
    return [term for term, found in values.items() if len(set(found)) == len(found)]


def _random_rows(numbers: range, terms: list[str]) -> list[dict[str, Any]]:
    draw = random.Random(SEED + numbers.start)
    known = synonyms()
    return [_row(number, draw.choice(terms), known, draw) for number in numbers]


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


def write(path: Path = HERE / "data" / "example.jsonl", split: str = "example") -> None:
    """Write a set to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in split_rows(split)))


if __name__ == "__main__":
    for split in sys.argv[1:] or SIZES:
        write(HERE / "data" / f"{split}.jsonl", split)
