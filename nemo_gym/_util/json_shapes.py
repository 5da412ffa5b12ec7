# SPDX-License-Identifier: Apache-2.0
"""Looks into JSON of unknown shape that find nothing where something else stands."""

from collections.abc import Mapping
from typing import Any


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """Return `value` if it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def as_int(value: Any) -> int | None:
    """Return `value` if it is a whole number, else None; a bool is none."""
    return value if type(value) is int else None


def as_number(value: Any) -> float | None:
    """Return `value` if it is a number, else None; a bool is none."""
    return float(value) if type(value) in (int, float) else None
