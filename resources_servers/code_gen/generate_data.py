# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment: always the same ones.

Kinds of problems take turns, so that the first few rows are a fair sample of all. What unit tests expect is what the
problem's own program gives. `solution` is what a model says that writes that program.
"""

import hashlib
import io
import json
import random
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from resources_servers.code_gen.problems import KINDS, Problem, source_of

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
ROUNDS = 5

AS_PROGRAM = "Write a Python program. It reads from standard input and prints to standard output."
AS_FUNCTION = "Write it in Python."
FORM = "Give the whole program in one block:\n```python\n# your program\n```"


def all_rows() -> list[dict[str, Any]]:
    """Return all rows, the kinds taking turns."""
    return [_row(level, problem) for level, problem in _problems()]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: some of every difficulty."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that solves `row`."""
    programs = {_hash(problem): source_of(problem) for _, problem in _problems()}
    return [f"This program does it:\n```python\n{programs[row['hash_id']]}\n```"]


def _problems() -> Iterator[tuple[str, Problem]]:
    draw = random.Random(SEED)
    turns = [
        (level, kind) for number in range(5) for level, kinds in KINDS.items() for kind in kinds[number : number + 1]
    ]
    seen = set()
    for _ in range(ROUNDS):
        for level, kind in turns:
            problem = kind(draw)
            if problem.statement not in seen:
                seen.add(problem.statement)
                yield level, problem


def _row(level: str, problem: Problem) -> dict[str, Any]:
    how = AS_PROGRAM if problem.fn_name is None else AS_FUNCTION
    tests: dict[str, Any] = {"inputs": problem.inputs, "outputs": [_output(problem, given) for given in problem.inputs]}
    if problem.fn_name is not None:
        tests["fn_name"] = problem.fn_name
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{problem.statement}\n\n{how} {FORM}"}]},
        "verifier_metadata": {"unit_tests": tests, "difficulty": level},
        "hash_id": _hash(problem),
        "dataset": "code_gen",
        "source": "generated",
    }


def _output(problem: Problem, given: str) -> str:
    """Return what the problem's own program makes of an input."""
    names: dict[str, Any] = {"__name__": "__main__"}
    if problem.fn_name is not None:
        exec(source_of(problem), names)
        return json.dumps(names[problem.fn_name](*map(json.loads, given.split("\n"))))
    printed = io.StringIO()
    with mock.patch("sys.stdin", io.StringIO(given)), redirect_stdout(printed):
        exec(source_of(problem), names)
    return printed.getvalue()


def _hash(problem: Problem) -> str:
    return hashlib.sha256(problem.statement.encode()).hexdigest()[:16]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
