# SPDX-License-Identifier: Apache-2.0
"""Paths into a config: `a.b[0].c` as text, `("a", "b", "0", "c")` in code.

The functions work on plain dicts and lists and follow neither interpolations nor directives.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from nemo_gym._util.nearest import nearest

KeyPath = tuple[str, ...]


def split_path(text: str) -> KeyPath:
    """Split a path; `a.b[0].c` and `a.b.0.c` name the same place."""
    return tuple(part for part in re.split(r"[.\[\]]+", text.strip()) if part)


def join_path(path: Iterable[str | int]) -> str:
    """Return the dotted form; a part that is an int is a position in a list and goes in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}"
    return text.removeprefix(".")


def list_keys(value: Any) -> list[str]:
    """Return the keys that can follow `value` in a path."""
    if isinstance(value, dict):
        return [str(key) for key in value]
    if isinstance(value, list):
        return [str(index) for index in range(len(value))]
    return []


def get_child(value: Any, key: str) -> Any:
    """Return the value below `key`; raises KeyError where there is none."""
    if isinstance(value, dict):
        for candidate in value:
            if str(candidate) == key:
                return value[candidate]
    elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
        return value[int(key)]
    raise KeyError(key)


def get_value(value: Any, path: KeyPath) -> Any:
    """Return the value at `path`; raises KeyError where there is none."""
    for key in path:
        value = get_child(value, key)
    return value


def has_path(value: Any, path: KeyPath) -> bool:
    try:
        get_value(value, path)
    except KeyError:
        return False
    return True


def remove_path(value: Any, path: KeyPath) -> None:
    """Remove the value at `path`; do nothing where there is none."""
    if has_path(value, path):
        block = get_value(value, path[:-1])
        del block[next(key for key in block if str(key) == path[-1]) if isinstance(block, dict) else int(path[-1])]


def walk_mappings(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], dict[Any, Any]]]:
    """Yield `value`, if it is a mapping, and every mapping below it, each with its path."""
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from walk_mappings(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk_mappings(item, (*path, index))


def find_similar_paths(value: Any, path: KeyPath) -> list[str]:
    """Return existing paths that resemble `path`: they share its beginning and go on with a similar key."""
    known: KeyPath = ()
    for key in path:
        try:
            value = get_child(value, key)
        except KeyError:
            rest = path[len(known) + 1 :]
            similar = [(*known, match) for match in nearest(key, list_keys(value))]
            return [join_path((*found, *rest) if has_path(value, (found[-1], *rest)) else found) for found in similar]
        known = (*known, key)
    return []
