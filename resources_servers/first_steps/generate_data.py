# SPDX-License-Identifier: Apache-2.0
"""Write the questions of this environment: always the same ones.

Every kind has a pool, of which a few questions are drawn; nothing is chosen by how a model does on it. Kinds take
turns, so that the first few rows are a fair sample of all. `solution` is what a model says that knows the answer.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
PER_KIND = 4

INSTRUCTIONS = "Answer with the answer alone, as in the examples."
WORDS = (
    "apple",
    "basket",
    "bridge",
    "candle",
    "forest",
    "garden",
    "hammer",
    "island",
    "kitchen",
    "mountain",
    "orange",
    "pencil",
    "planet",
    "purple",
    "rabbit",
    "river",
    "silver",
    "window",
    "winter",
    "yellow",
)
CAPITALS = {
    "Argentina": "Buenos Aires",
    "Austria": "Vienna",
    "Cuba": "Havana",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo",
    "France": "Paris",
    "Germany": "Berlin",
    "Hungary": "Budapest",
    "Ireland": "Dublin",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Norway": "Oslo",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Russia": "Moscow",
    "Spain": "Madrid",
}
OPPOSITES = {
    "black": ["white"],
    "dark": ["light", "bright"],
    "day": ["night"],
    "down": ["up"],
    "empty": ["full"],
    "good": ["bad", "evil"],
    "happy": ["sad", "unhappy"],
    "high": ["low"],
    "inside": ["outside"],
    "left": ["right"],
    "long": ["short"],
    "old": ["new", "young"],
    "open": ["closed", "shut", "close"],
    "rich": ["poor"],
    "slow": ["fast", "quick"],
    "strong": ["weak"],
}
PAST_TENSES = {
    "buy": "bought",
    "cook": "cooked",
    "drink": "drank",
    "eat": "ate",
    "find": "found",
    "give": "gave",
    "help": "helped",
    "jump": "jumped",
    "laugh": "laughed",
    "play": "played",
    "see": "saw",
    "sing": "sang",
    "take": "took",
    "write": "wrote",
}

Question = tuple[str, list[str]]


@dataclass(frozen=True)
class Kind:
    """A kind of question: how its answers look, and how to draw some."""

    examples: tuple[tuple[str, str], tuple[str, str]]
    draw: Callable[[random.Random], Sequence[Question]]


def _capitals(draw: random.Random) -> list[Question]:
    return [(f"Capital of {country}?", [CAPITALS[country]]) for country in draw.sample(sorted(CAPITALS), PER_KIND)]


def _copying(draw: random.Random) -> list[Question]:
    texts = [" ".join(draw.sample(WORDS, length)) for length in range(5, 5 + PER_KIND)]
    return [(f"Repeat: {text}", [text]) for text in texts]


def _letters(draw: random.Random) -> list[Question]:
    return [(f"First letter of {word}?", [word[0]]) for word in draw.sample(WORDS, PER_KIND)]


def _numbers(draw: random.Random) -> list[Question]:
    pairs = [draw.sample(range(2, 100), 2) for _ in range(PER_KIND)]
    return [(f"Which is larger, {a} or {b}?", [str(max(a, b))]) for a, b in pairs]


def _sums(draw: random.Random) -> list[Question]:
    pairs = [(draw.randint(2, 9), draw.randint(2, 9)) for _ in range(PER_KIND)]
    return [(f"What is {a} + {b}?", [str(a + b)]) for a, b in pairs]


def _opposites(draw: random.Random) -> list[Question]:
    return [(f"Opposite of {word}?", OPPOSITES[word]) for word in draw.sample(sorted(OPPOSITES), PER_KIND)]


def _past_tenses(draw: random.Random) -> list[Question]:
    return [(f"Past of {verb}?", [PAST_TENSES[verb]]) for verb in draw.sample(sorted(PAST_TENSES), PER_KIND)]


KINDS = {
    "copying": Kind(
        (("Repeat: sun tree glass", "sun tree glass"), ("Repeat: door cup stone", "door cup stone")), _copying
    ),
    "capitals": Kind((("Capital of Portugal?", "Lisbon"), ("Capital of Greece?", "Athens")), _capitals),
    "letters": Kind((("First letter of house?", "h"), ("First letter of table?", "t")), _letters),
    "opposites": Kind((("Opposite of hot?", "cold"), ("Opposite of early?", "late")), _opposites),
    "past_tenses": Kind((("Past of walk?", "walked"), ("Past of go?", "went")), _past_tenses),
    "numbers": Kind((("Which is larger, 3 or 8?", "8"), ("Which is larger, 60 or 24?", "60")), _numbers),
    "sums": Kind((("What is 2 + 3?", "5"), ("What is 6 + 1?", "7")), _sums),
}


def demo_rows() -> list[dict[str, Any]]:
    """Return all questions, the kinds taking turns."""
    draw = random.Random(SEED)
    drawn = {name: kind.draw(draw) for name, kind in KINDS.items()}
    return [_row(name, *drawn[name][turn]) for turn in range(PER_KIND) for name in KINDS]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return demo_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that answers `row`."""
    answer: str = row["answers"][0]
    return [answer]


def _row(category: str, question: str, answers: list[str]) -> dict[str, Any]:
    shown = [
        {"role": role, "content": text}
        for example in KINDS[category].examples
        for role, text in zip(("user", "assistant"), example, strict=True)
    ]
    instructions = {"role": "system", "content": INSTRUCTIONS}
    return {
        "responses_create_params": {"input": [instructions, *shown, {"role": "user", "content": question}]},
        "category": category,
        "answers": answers,
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `demo.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("demo.jsonl"), demo_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
