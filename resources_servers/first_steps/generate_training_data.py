# SPDX-License-Identifier: Apache-2.0
"""Write the tasks of `gym demo --train`: always the same ones, to train on, to tune settings on, and to test with.

Two words are to be swapped. The three sets have no word in common, so that nobody can have learnt an answer by heart.
One example before each question shows the form of the answer.
"""

import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
TRAINING_ROWS = 160
HELD_OUT_ROWS = 64
TEST_ROWS = 64
INSTRUCTIONS = "Answer with the answer alone."
EXAMPLE = ("Swap: sun tree", "tree sun")
CATEGORY = "swapping"

TRAINING_WORDS = """
apple bridge button candle carpet castle chair cloud coffee desert doctor dragon eagle engine farmer flower
forest garden guitar hammer island jacket kitchen ladder lemon letter market meadow mirror monkey mountain
number orange pencil pepper pillow planet purple queen rabbit river rocket silver spider square stone summer
table teacher tiger turtle valley velvet village violin winter wizard yellow
"""
HELD_OUT_WORDS = """
anchor autumn basket bottle butter camera canyon circle copper cotton donkey evening falcon feather finger
galaxy honey hunter insect jungle kettle lantern leather lion magnet marble melon morning needle ocean onion
palace paper pirate pocket potato rainbow ribbon sailor shadow spring sugar thunder ticket tomato tunnel uncle
whale window zebra
"""
TEST_WORDS = """
acorn arrow bacon barrel beacon blanket blossom branch bucket cabin cactus canoe carrot cellar cherry cradle
curtain daisy diamond dolphin drawer ember fiddle fountain glove goblet harbor helmet hollow ivory jewel kitten
lobster locket mango mitten napkin nephew oyster parrot pebble pigeon pumpkin puzzle raven saddle salmon scarf
shovel sparrow statue temple trumpet tulip umbrella walnut wagon whistle
"""


def training_rows() -> list[dict[str, Any]]:
    """Return the tasks to train on."""
    return _draw(TRAINING_WORDS, TRAINING_ROWS, random.Random(f"train {SEED}"))


def held_out_rows() -> list[dict[str, Any]]:
    """Return the tasks that the number of steps and the learning rate were tuned on."""
    return _draw(HELD_OUT_WORDS, HELD_OUT_ROWS, random.Random(f"held out {SEED}"))


def test_rows() -> list[dict[str, Any]]:
    """Return the tasks by which learning is measured; nothing may be tuned on them."""
    return _draw(TEST_WORDS, TEST_ROWS, random.Random(f"test {SEED}"))


def _draw(words: str, count: int, draw: random.Random) -> list[dict[str, Any]]:
    pairs: dict[tuple[str, ...], None] = {}
    while len(pairs) < count:
        pairs[tuple(draw.sample(words.split(), 2))] = None
    return [_row(first, second) for first, second in pairs]


def _row(first: str, second: str) -> dict[str, Any]:
    asked, answer = EXAMPLE
    return {
        "responses_create_params": {
            "input": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": asked},
                {"role": "assistant", "content": answer},
                {"role": "user", "content": f"Swap: {first} {second}"},
            ]
        },
        "category": CATEGORY,
        "answers": [f"{second} {first}"],
    }


def write(folder: Path = HERE / "data") -> None:
    """Write the three files into `folder`."""
    sets = {"training": training_rows(), "held_out": held_out_rows(), "test": test_rows()}
    for name, rows in sets.items():
        (folder / f"swapping_{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


if __name__ == "__main__":
    write()
