# SPDX-License-Identifier: Apache-2.0
"""Whether calls are the expected ones: every expected argument with an equal value, in calls of the same name.

Values are compared as Python compares them, so 5, 5.0 and, for 1, true are equal. Arguments that were not asked for do
not matter.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call and its arguments: a dict, unless a model wrote some other JSON."""

    name: str
    arguments: Any


def parse_arguments(text: str) -> Any:
    """Return the value of a call's arguments; no arguments if they are not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def count_matches(made: Sequence[Call], expected: Sequence[Call]) -> int:
    """Return how many expected calls were made, each counted once, in any order."""
    unused = list(made)
    for call in expected:
        match = next((number for number, other in enumerate(unused) if _is_match(other, call)), None)
        if match is not None:
            del unused[match]
    return len(made) - len(unused)


def _is_match(made: Call, expected: Call) -> bool:
    if made.name != expected.name:
        return False
    if not expected.arguments:
        return True
    return isinstance(made.arguments, dict) and all(
        key in made.arguments and made.arguments[key] == value for key, value in expected.arguments.items()
    )
