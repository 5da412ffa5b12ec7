# SPDX-License-Identifier: Apache-2.0
"""MBPP: short Python functions to be written from a sentence and three assertions, which are also the tests."""

import ast
from collections.abc import Sequence
from pathlib import Path

from benchmarks._assertions import unit_tests
from benchmarks._loading import Row, hub_rows, write_rows

REPO_ID = "google-research-datasets/mbpp"
COLUMNS = {
    "full": ("task_id", "text", "code", "test_list", "test_setup_code"),
    "sanitized": ("task_id", "prompt", "code", "test_list", "test_imports"),
}


def prepare(config: str = "full", revision: str | None = None) -> Path:
    """Write the rows of the test split: all of it, or of what its authors have edited (`sanitized`)."""
    if config not in COLUMNS:
        raise ValueError(f"config {config!r} is none of {', '.join(COLUMNS)}")
    rows = hub_rows(REPO_ID, f"{config}/test-*.parquet", COLUMNS[config], revision)
    if config == "full":
        made = [_row(row, row["text"], row["test_setup_code"] or "") for row in rows]
    else:
        made = [_row(row, row["prompt"], "\n".join(row["test_imports"])) for row in rows]
    return write_rows(__file__, made)


def _row(row: Row, task: str, given: str) -> Row:
    tests: Sequence[str] = [_unix(test) for test in row["test_list"]]
    return {
        "task": _unix(task).strip(),
        "tests": "\n".join(tests),
        "verifier_metadata": {
            "unit_tests": unit_tests(_unix(given), "", tests, tested_names(_unix(row["code"]), tests))
        },
        "hash_id": f"mbpp-{row['task_id']}",
        "dataset": "mbpp",
        "source": REPO_ID,
    }


def tested_names(solution: str, tests: Sequence[str]) -> list[str] | None:
    """Return the names of a solution that its tests use, such as its function; None if it cannot be told."""
    try:
        defined = [one.name for one in ast.parse(solution).body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    except SyntaxError:
        return None
    used = {node.id for test in tests for node in ast.walk(ast.parse(test.strip())) if isinstance(node, ast.Name)}
    return [name for name in dict.fromkeys(defined) if name in used] or None


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


if __name__ == "__main__":
    prepare()
