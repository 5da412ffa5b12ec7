# SPDX-License-Identifier: Apache-2.0
"""Generate tasks for the environments from seeds: rows in SkyRL's format, each with a reply that solves it."""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

Row = dict[str, Any]


class Task(NamedTuple):
    """A question, the fields needed to score replies, and a reply that earns the full reward."""

    question: str
    fields: Row
    solution: str


# --- gsm8k ------------------------------------------------------------------------------------------------------------

_GSM8K_FORM = 'Let\'s think step by step and output the final answer after "####".'
_STORIES = (
    ("{name} buys {a} boxes of {b} pencils and gives {c} pencils away. How many are left?", lambda a, b, c: a * b - c),
    (
        "A bus carries {a} people. At each of {b} stops {c} people get on. How many are on it then?",
        lambda a, b, c: a + b * c,
    ),
    ("{name} runs {a} km on {b} days and {c} km on one more day. How far is that in all?", lambda a, b, c: a * b + c),
    (
        "A baker sells {a} rolls a day for {b} days, at {c} cents each. How many cents does that make?",
        lambda a, b, c: a * b * c,
    ),
)
_NAMES = ("Ada", "Ben", "Chen", "Dina", "Emil", "Fatou")


def _make_gsm8k(random_: random.Random) -> Task:
    story, solve = random_.choice(_STORIES)
    a = random_.randint(4, 12)
    b = random_.randint(3, 9)
    c = random_.randint(2, 11)
    answer = str(solve(a, b, c))
    question = f"{story.format(name=random_.choice(_NAMES), a=a, b=b, c=c)} {_GSM8K_FORM}"
    return Task(question, {"reward_spec": {"method": "rule", "ground_truth": answer}}, f"#### {answer}")


def _make_gsm8k_multi_turn(random_: random.Random) -> Task:
    task = _make_gsm8k(random_)
    return task._replace(fields={**task.fields, "max_turns": 3})


# --- aime -------------------------------------------------------------------------------------------------------------

_AIME_FORM = "The last line of your response should be of the form Answer: $Answer (without quotes)."


def _make_aime(random_: random.Random) -> Task:
    base = random_.randint(2, 19)
    power = random_.randint(20, 99)
    modulus = random_.randint(101, 999)
    answer = str(pow(base, power, modulus))
    question = f"Find the remainder when ${base}^{{{power}}}$ is divided by {modulus}. {_AIME_FORM}"
    return Task(question, {"reward_model": {"style": "rule", "ground_truth": answer}}, f"Answer: {answer}")


# --- lcb --------------------------------------------------------------------------------------------------------------

_LCB_FORM = "Read from standard input, write to standard output. Put your Python program into a ```python code block."
_PROGRAMS = {
    "Given integers on one line, print their sum.": "print(sum(map(int, input().split())))",
    "Given integers on one line, print them from the smallest to the largest.": (
        "print(*sorted(map(int, input().split())))"
    ),
    "Given integers on one line, print how many different ones there are.": "print(len(set(input().split())))",
    "Given integers on one line, print the difference between the largest and the smallest.": (
        "numbers = list(map(int, input().split()))\nprint(max(numbers) - min(numbers))"
    ),
}
_ANSWERS: dict[str, Callable[[list[int]], str]] = dict(
    zip(
        _PROGRAMS,
        (
            lambda numbers: str(sum(numbers)),
            lambda numbers: " ".join(map(str, sorted(numbers))),
            lambda numbers: str(len(set(numbers))),
            lambda numbers: str(max(numbers) - min(numbers)),
        ),
        strict=True,
    )
)


def _make_lcb(random_: random.Random) -> Task:
    asked = random_.choice(list(_PROGRAMS))
    tests = []
    for _ in range(4):
        numbers = [random_.randint(-99, 99) for _ in range(random_.randint(2, 8))]
        tests.append(
            {"input": f"{' '.join(map(str, numbers))}\n", "output": _ANSWERS[asked](numbers), "testtype": "stdin"}
        )
    fields = {"reward_spec": {"method": "rule", "ground_truth": json.dumps(tests)}}
    return Task(f"{asked} {_LCB_FORM}", fields, f"```python\n{_PROGRAMS[asked]}\n```")


# --- text2sql ---------------------------------------------------------------------------------------------------------

_SQL_FORM = (
    "Think in <think> tags first, in every turn. To try a query, write it in <sql> tags: its result comes back in "
    "<observation> tags. When you are sure, write the query that answers the question in <solution> tags. "
    "You have {turns} turns."
)
_SQL_TURNS = 4
_CITIES = ("Oslo", "Lima", "Pune", "Kyiv", "Graz")
_QUESTIONS = (
    ("How many orders are there from {city}?", "SELECT COUNT(*) FROM orders WHERE city = '{city}'"),
    ("Which products cost more than {price}? Give their names.", "SELECT name FROM products WHERE price > {price}"),
    (
        "How many pieces of each product were ordered? Give name and number, of ordered products only.",
        "SELECT p.name, SUM(o.pieces) FROM orders o JOIN products p ON p.id = o.product_id GROUP BY p.id",
    ),
    (
        "What did all orders from {city} cost together?",
        "SELECT SUM(o.pieces * p.price) FROM orders o JOIN products p ON p.id = o.product_id WHERE o.city = '{city}'",
    ),
)


def _make_text2sql(random_: random.Random) -> Task:
    names = random_.sample(("lamp", "desk", "chair", "shelf", "clock", "mirror"), 4)
    products = [(number, name, random_.randint(5, 90)) for number, name in enumerate(names, 1)]
    orders = [
        (number, random_.randint(1, 4), random_.choice(_CITIES), random_.randint(1, 9))
        for number in range(1, random_.randint(9, 16))
    ]
    schema = (
        "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);\n"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, product_id INTEGER, city TEXT, pieces INTEGER);\n"
    )
    inserts = [f"INSERT INTO products VALUES {row};" for row in products]
    inserts += [f"INSERT INTO orders VALUES {row};" for row in orders]
    asked, sql = random_.choice(_QUESTIONS)
    chosen = {"city": random_.choice(orders)[2], "price": sorted(price for _, _, price in products)[1]}
    gold = sql.format(**chosen)
    fields = {
        "db_id": "shop",
        "data": "spider",
        "db_script": schema + "\n".join(inserts),
        "reward_spec": {"method": "rule", "ground_truth": gold},
        "max_turns": _SQL_TURNS,
    }
    question = f"{schema}\n{asked.format(**chosen)}\n{_SQL_FORM.format(turns=_SQL_TURNS)}"
    return Task(question, fields, f"<think>I know the tables.</think>\n<solution>{gold}</solution>")


# --- all tasks --------------------------------------------------------------------------------------------------------

MAKERS: dict[str, Callable[[random.Random], Task]] = {
    "aime": _make_aime,
    "gsm8k": _make_gsm8k,
    "gsm8k_multi_turn": _make_gsm8k_multi_turn,
    "lcb": _make_lcb,
    "text2sql": _make_text2sql,
}


def make_task(env_class: str, seed: int) -> Task:
    """Return the task of an environment for a seed."""
    return MAKERS[env_class](random.Random(f"{env_class} {seed}"))


def make_row(env_class: str, seed: int) -> Row:
    """Return the task for a seed as a row."""
    task = make_task(env_class, seed)
    return {
        "responses_create_params": {"input": [{"role": "user", "content": task.question}]},
        "env_class": env_class,
        "seed": seed,
        "data_source": "generated",
        **task.fields,
    }
