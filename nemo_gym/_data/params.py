# SPDX-License-Identifier: Apache-2.0
"""Create params taken apart: the conversation, which differs from row to row, and the settings, which seldom do.

What has been found out about settings is remembered, so that the same tools are not looked at a hundred thousand times.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from nemo_gym._metrics.describe import Number, finite

_MOST_KEPT = 1024
_LONGEST_KEPT_BYTES = 1 << 16
_ROLES = frozenset({"user", "assistant", "system", "developer"})
SAMPLING = ("temperature", "top_p", "max_output_tokens", "max_tool_calls", "top_logprobs")


# Compared as objects: there is one for all create params whose settings are written alike, and it can be counted.
@dataclass(slots=True, eq=False)
class Settings:
    """What is known about create params apart from their input."""

    identity: int
    """A hash: the same for settings that are equal."""
    words: int
    tools: int | None
    sampling: dict[str, Number]
    """The sampling parameters that are given and are numbers."""
    instructions: str | None
    is_valid: bool = False


Messages = list[tuple[str, str]]
"""Roles and texts."""


Asked = tuple[Settings, Messages | None]
"""Create params taken apart: their settings, and their input, if it is plain messages."""


def plain_messages(given: Any) -> Messages | None:
    """The messages of an input that is a list of nothing but messages with a known role and a text, nothing else.

    Such a list is valid for sure, and its words and tokens are those of its texts. Most inputs are like that.
    """
    if type(given) is not list:
        return None
    messages = []
    try:
        for item in given:
            role, content = item["role"], item["content"]
            if type(item) is not dict or len(item) != 2 or type(content) is not str or role not in _ROLES:
                return None
            messages.append((role, content))
    except (TypeError, KeyError, IndexError):
        # Not an object, a field that is not there, or a role that is a list or an object itself.
        return None
    return messages


class KnownSettings:
    """The settings seen lately."""

    def __init__(self) -> None:
        self._known: dict[bytes, Settings] = {}

    def of(self, params: Mapping[str, Any]) -> Settings:
        """The settings in `params`; the same object for those that are written alike, as long as it is remembered."""
        plain = dict(params)
        plain.pop("input", None)
        try:
            # In the order of its keys, which is quicker: in another order, it is another object with the same identity.
            key = orjson.dumps(plain)
        except TypeError:
            key = canonical(plain)
        known = self._known.get(key)
        if known is None:
            known = _settings(plain)
            if len(key) <= _LONGEST_KEPT_BYTES:
                if len(self._known) >= _MOST_KEPT:
                    self._known.clear()
                self._known[key] = known
        return known


def canonical(value: Any) -> bytes:
    """The same bytes for equal values, whatever the order of their keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Half of a surrogate pair, or an integer of more than 64 bits.
        return json.dumps(value, sort_keys=True).encode()


def words_of(value: Any) -> int:
    """The number of pieces between white space in the JSON text of `value`."""
    return len(json.dumps(value).split())


def _settings(plain: dict[str, Any]) -> Settings:
    tools, instructions = plain.get("tools"), plain.get("instructions")
    numbers = {name: finite(plain[name]) for name in SAMPLING if name in plain}
    return Settings(
        identity=hash(canonical(plain)),
        words=words_of(plain) if plain else 0,
        tools=len(tools) if isinstance(tools, list) else None,
        sampling={name: number for name, number in numbers.items() if number is not None},
        instructions=instructions if isinstance(instructions, str) else None,
    )
