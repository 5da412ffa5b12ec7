# SPDX-License-Identifier: Apache-2.0
"""HumanEval: 164 functions to be written from their signature and docstring, tested by assertions.

The tests of the data set are run as they are. What a prompt defines beside the function that is asked for, such as a
helper or an import, is there for the tests, and for a solution that takes it for given.
"""

import ast
from pathlib import Path

from benchmarks._assertions import unit_tests
from benchmarks._loading import Row, hub_rows, write_rows

REPO_ID = "openai/openai_humaneval"


def prepare(revision: str | None = None) -> Path:
    """Write the rows."""
    columns = ("task_id", "prompt", "test", "entry_point")
    rows = hub_rows(REPO_ID, "openai_humaneval/test-*.parquet", columns, revision)
    return write_rows(__file__, map(_row, rows))


def _row(row: Row) -> Row:
    entry_point = row["entry_point"]
    given = given_by(row["prompt"], entry_point)
    tests = unit_tests(given, row["test"], [f"check({entry_point})"], [entry_point])
    return {
        "prompt": row["prompt"].strip("\n"),
        "entry_point": entry_point,
        "verifier_metadata": {"unit_tests": tests},
        "hash_id": row["task_id"],
        "dataset": "human_eval",
        "source": REPO_ID,
    }


def given_by(prompt: str, entry_point: str) -> str:
    """What a prompt defines beside the function `entry_point`."""
    statements = ast.parse(prompt).body
    return "\n\n".join(
        ast.unparse(one) for one in statements if not (isinstance(one, ast.FunctionDef) and one.name == entry_point)
    )


if __name__ == "__main__":
    prepare()
