# SPDX-License-Identifier: Apache-2.0
"""JSON-shaped views of wire objects, for code that handles typed and raw messages alike.

A view shares the leaves of what it shows, token arrays above all: a turn may carry 100,000 of them and they are
never copied. So a view is for reading; whoever needs to change one builds a new dict.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

# Most of a conversation is these; telling them first halves the cost of a view.
_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """`value` with models as dicts. Lists of scalars are the very same objects."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list or kind is tuple:
        return [plain(element) for element in value] if value and _is_object(value[0]) else value
    if isinstance(value, BaseModel):
        return {name: plain(held) for name, held in value}
    if isinstance(value, Mapping):
        return {name: plain(held) for name, held in value.items()}
    return value


def _is_object(value: Any) -> bool:
    return type(value) not in _SCALARS and isinstance(value, BaseModel | Mapping)


def field(value: Any, name: str) -> Any:
    """One field of a model or a dict, None where it has none: cheaper than a view of all (log-probs are many)."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
