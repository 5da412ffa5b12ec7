# SPDX-License-Identifier: Apache-2.0
"""Read JSON of unknown shape: a value of an unexpected type counts as missing."""

from collections.abc import Mapping
from typing import Any


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """Return `value` if it is a string that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def as_int(value: Any) -> int | None:
    """Return `value` if it is an integer and not a bool, else None."""
    return value if type(value) is int else None


def as_number(value: Any) -> float | None:
    """Return `value` as a float if it is a number and not a bool, else None."""
    return float(value) if type(value) in (int, float) else None
