# SPDX-License-Identifier: Apache-2.0
"""Data sets whose tests are assertions, as unit tests of the environment `code_gen`.

A row brings a `harness` along: code that runs after the program, in the same sandbox, and has a function that makes one
test. A test that fails is a wrong answer, like an output that differs.
"""

import ast
from collections.abc import Sequence
from textwrap import indent
from typing import Any

FUNCTION = "nemo_gym_test"


def unit_tests(given: str, tests: Sequence[str]) -> dict[str, Any]:
    """The unit tests of a task: `tests` are statements, `given` is code they need. SyntaxError: one is no Python."""
    branches = "".join(
        f"if number == {number}:\n{indent(ast.unparse(ast.parse(test.strip())), '    ')}\n"
        for number, test in enumerate(tests)
    )
    ast.parse(given)
    harness = (
        f"{given.strip()}\n\n\n"
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
    }
