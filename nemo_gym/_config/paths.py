# SPDX-License-Identifier: Apache-2.0
"""Paths into a config: `a.b[0].c` as text, `("a", "b", "0", "c")` in code.

Works on plain dicts and lists; interpolations and directives are not followed here.
"""

import re
from collections.abc import Iterable
from typing import Any

from nemo_gym._util.nearest import nearest

KeyPath = tuple[str, ...]


def split_path(text: str) -> KeyPath:
    """Split a path; `a.b[0].c` and `a.b.0.c` both name the same place."""
    return tuple(part for part in re.split(r"[.\[\]]+", text.strip()) if part)


def join_path(path: Iterable[str | int]) -> str:
    """Return the dotted form; positions in a list are written in brackets when they are numbers."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def keys_of(value: Any) -> list[str]:
    """Return the keys by which a path can go on below `value`."""
    if isinstance(value, dict):
        return [str(key) for key in value]
    return [str(index) for index in range(len(value))] if isinstance(value, list) else []


def child(value: Any, key: str) -> Any:
    """Return the value below `key`; raises KeyError where there is none."""
    if isinstance(value, dict):
        for candidate in value:
            if str(candidate) == key:
                return value[candidate]
    elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
        return value[int(key)]
    raise KeyError(key)


def value_at(value: Any, path: KeyPath) -> Any:
    """Return the value at `path`; raises KeyError where there is none."""
    for key in path:
        value = child(value, key)
    return value


def has_path(value: Any, path: KeyPath) -> bool:
    try:
        value_at(value, path)
    except KeyError:
        return False
    return True


def nearest_paths(value: Any, path: KeyPath) -> list[str]:
    """Return existing paths that resemble `path`: right up to a point, then a similar key."""
    known: KeyPath = ()
    for key in path:
        try:
            value = child(value, key)
        except KeyError:
            rest = path[len(known) + 1 :]
            similar = [(*known, match) for match in nearest(key, keys_of(value))]
            return [join_path((*found, *rest) if has_path(value, (found[-1], *rest)) else found) for found in similar]
        known = (*known, key)
    return []
