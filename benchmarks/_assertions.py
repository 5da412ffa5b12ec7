# SPDX-License-Identifier: Apache-2.0
"""Data sets whose tests are assertions, as unit tests of the environment `code_gen`.

A row brings a `harness` along: code that runs after the program, in a process of its own, and has a function that makes
one test. A test that fails is a wrong answer, like an output that differs.
"""

import ast
from collections.abc import Sequence
from textwrap import indent
from typing import Any

FUNCTION = "nemo_gym_test"


def unit_tests(given: str, checks: str, tests: Sequence[str], entry_points: Sequence[str] | None) -> dict[str, Any]:
    """Return the unit tests of a task; SyntaxError if something is no Python.

    `tests` are statements that use the `entry_points` of a solution, `given` is code that they and a solution need, and
    `checks` code that only they do.
    """
    branches = "".join(
        f"if number == {number}:\n{indent(ast.unparse(ast.parse(test.strip())), '    ')}\n"
        for number, test in enumerate(tests)
    )
    ast.parse(given)
    setup = "\n\n".join(filter(None, (given.strip(), checks.strip())))
    harness = (
        f"{setup}\n\n\n"
        f"def {FUNCTION}(number):\n"
        "    try:\n"
        f"{indent(branches, ' ' * 8)}"
        "    except AssertionError as error:\n"
        "        return f'assertion failed: {error}'\n"
        "    return True\n"
    )
    return {
        "inputs": [str(number) for number in range(len(tests))],
        "outputs": ["true"] * len(tests),
        "fn_name": FUNCTION,
        "harness": harness,
        "given": given.strip(),
        "entry_points": None if entry_points is None else list(entry_points),
    }
