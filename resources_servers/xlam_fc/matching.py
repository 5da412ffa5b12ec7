# SPDX-License-Identifier: Apache-2.0
"""Whether calls are the expected ones: names exactly, arguments as values. Types count; 5 and 5.0 are one number."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call; its arguments are None if they are no JSON object."""

    name: str
    arguments: dict[str, Any] | None


def is_same_set(made: Sequence[Call], expected: Sequence[Call]) -> bool:
    """Return whether both have the same calls, each as often, in any order."""
    if len(made) != len(expected) or any(call.arguments is None for call in made):
        return False
    return Counter(map(_key, made)) == Counter(map(_key, expected))


def _key(call: Call) -> tuple[str, str]:
    return call.name, json.dumps(_normal(call.arguments), sort_keys=True)


def _normal(value: Any) -> Any:
    """Whole floats as ints, and strings without white space around them."""
    if isinstance(value, dict):
        return {str(key): _normal(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_normal(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value
