# SPDX-License-Identifier: Apache-2.0
"""Write the prompts of this environment: always the same ones.

Each asks for a short text on a topic, under one to three instructions that a rule can check. Kinds take turns, so that
the first few rows are a fair sample of all. `solution` is a reply that follows them.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
FOLDS = 5
"""One row in so many is for validation."""
TOPICS = (
    "tea",
    "lighthouses",
    "the moon",
    "bicycles",
    "bread",
    "libraries",
    "rain",
    "chess",
    "gardens",
    "trains",
    "maps",
    "sleep",
)


class Task(NamedTuple):
    """What is asked for, and a reply that does it."""

    request: str
    instructions: dict[str, dict[str, Any]]
    reply: str


def short_note(topic: str, draw: random.Random) -> Task:
    least = draw.randint(12, 30)
    request = f"Write a note about {topic}. Use at least {least} words, and no commas."
    filler = " ".join(["There is always more to say about this."] * 5)
    return Task(
        request,
        {"length_constraints:number_words": {"num_words": least, "relation": "at least"}, "punctuation:no_comma": {}},
        f"A few words about {topic} follow here. {filler}",
    )


def listed(topic: str, draw: random.Random) -> Task:
    count = draw.randint(3, 6)
    request = f"List exactly {count} things that come to mind about {topic}, each on a line that begins with `* `."
    return Task(
        request,
        {"detectable_format:number_bullet_lists": {"num_bullets": count}},
        "\n".join(f"* thought {number} about {topic}" for number in range(1, count + 1)),
    )


def titled(topic: str, draw: random.Random) -> Task:
    word = draw.choice(("quiet", "silver", "morning", "window"))
    request = (
        f"Write a poem of a few lines about {topic}. Give it a title in double angle brackets, such as <<title>>, "
        f"and use the word `{word}` at least twice."
    )
    return Task(
        request,
        {
            "detectable_format:title": {},
            "keywords:frequency": {"keyword": word, "frequency": 2, "relation": "at least"},
        },
        f"<<On {topic}>>\n\nA {word} hour, a {word} thought\nof {topic}.",
    )


def data(topic: str, draw: random.Random) -> Task:
    request = f"Describe {topic} in JSON, with the keys `name` and `description`. Your whole reply must be JSON."
    reply = json.dumps({"name": topic, "description": f"What people call {topic}."})
    return Task(request, {"detectable_format:json_format": {}}, reply)


def lower_case(topic: str, draw: random.Random) -> Task:
    end = draw.choice(("that is all.", "so it goes.", "the end."))
    request = (
        f"Explain to a child what is good about {topic}. Write in English, in lower case letters only, "
        f"and end with the exact phrase `{end}`"
    )
    return Task(
        request,
        {"change_case:english_lowercase": {}, "startend:end_checker": {"end_phrase": end}},
        f"there is a lot that is good about {topic}, and you will find more of it when you look. {end}",
    )


def letter(topic: str, draw: random.Random) -> Task:
    count = draw.randint(2, 4)
    request = (
        f"Write a letter to invite a friend to a talk about {topic}. Leave at least {count} places to fill in, "
        "in square brackets such as [name], and end with a postscript that begins with P.S."
    )
    places = " ".join(("[name]", "[date]", "[place]", "[sender]")[:count])
    return Task(
        request,
        {
            "detectable_content:number_placeholders": {"num_placeholders": count},
            "detectable_content:postscript": {"postscript_marker": "P.S."},
        },
        f"Dear friend, come and hear about {topic}: {places}.\n\nP.S. Bring a chair.",
    )


def paragraphs(topic: str, draw: random.Random) -> Task:
    count = draw.randint(2, 4)
    nth = draw.randint(1, count)
    word = draw.choice(("however", "today", "perhaps"))
    request = (
        f"Write {count} paragraphs about {topic}, with an empty line between them. "
        f"Paragraph {nth} must begin with the word `{word}`."
    )
    begun = [word if number == nth else "here" for number in range(1, count + 1)]
    kwargs = {"num_paragraphs": count, "nth_paragraph": nth, "first_word": word}
    return Task(
        request,
        {"length_constraints:nth_paragraph_first_word": kwargs},
        "\n\n".join(f"{first.capitalize()} we think about {topic}." for first in begun),
    )


def french(topic: str, draw: random.Random) -> Task:
    request = f"Write two sentences about {topic}, in French only. Put your whole reply in double quotation marks."
    return Task(
        request,
        {"language:response_language": {"language": "fr"}, "startend:quotation": {}},
        '"Ce sont des choses que nous aimons dans la vie. Il y en a pour tous les jours et pour tout le monde."',
    )


def spoken(topic: str, draw: random.Random) -> Task:
    word = draw.choice(("well", "so", "yes"))
    request = (
        f"Say something about {topic} in two paragraphs, separated by the divider ***. "
        f"The first word of your reply must be `{word}`, and its last word `thanks`."
    )
    return Task(
        request,
        {
            "paragraphs:paragraphs": {},
            "first_word:first_word_answer": {"first_word": word},
            "last_word:last_word_answer": {"last_word": "thanks"},
        },
        f"{word.capitalize()} I like {topic}.\n***\nI could go on, but no, thanks.",
    )


KINDS: tuple[Callable[[str, random.Random], Task], ...] = (
    short_note,
    listed,
    titled,
    data,
    lower_case,
    letter,
    paragraphs,
    french,
    spoken,
)


def tasks() -> list[Task]:
    """Return every kind of task on every topic."""
    draw = random.Random(SEED)
    return [kind(topic, draw) for topic in TOPICS for kind in KINDS]


def all_rows() -> list[dict[str, Any]]:
    """Return one row for every task."""
    return [_row(number, task) for number, task in enumerate(tasks())]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def validation_rows() -> list[dict[str, Any]]:
    """Return a fifth of the rows, none of them an example."""
    return all_rows()[EXAMPLE_ROWS::FOLDS]


def train_rows() -> list[dict[str, Any]]:
    """Return all rows that are not for validation; they begin with the examples."""
    held_out = {row["id"] for row in validation_rows()}
    return [row for row in all_rows() if row["id"] not in held_out]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that does what `row` asks for."""
    return [tasks()[row["id"]].reply]


def _row(number: int, task: Task) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": task.request}]},
        "id": number,
        "verifier_metadata": {
            "instruction_id_list": list(task.instructions),
            "prompt": task.request,
            "kwargs": list(task.instructions.values()),
            "grading_mode": "binary" if number % 2 else "fraction",
        },
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and the train and validation rows beside it."""
    files = {path.name: rows(), "train.jsonl": train_rows(), "validation.jsonl": validation_rows()}
    for name, lines in files.items():
        path.with_name(name).write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
