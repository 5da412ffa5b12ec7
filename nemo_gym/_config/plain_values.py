# SPDX-License-Identifier: Apache-2.0
"""The values of overrides that need no grammar: words, whole numbers, quoted text, and lists of these.

Most overrides are that simple, and loading Hydra's parser takes longer than everything else that a short command does.
Whatever is not certain to mean the same to Hydra is left to it.
"""

import re
from typing import Any

_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][\w/.-]*", re.ASCII)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_QUOTED = re.compile(r"'[^'\\]*'")
_ITEM = re.compile(r" *(?:'[^'\\]*'|[^',]+) *(?=,|$)")
_CONSTANTS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset({*_CONSTANTS, "nan", "inf"})


class NotPlain(Exception):
    """The value may mean something that only the grammar knows."""


def plain_value(key: str, text: str) -> Any:
    """What `key=text` sets `key` to; raises NotPlain where that takes a parser."""
    if not _KEY.fullmatch(key):
        raise NotPlain
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip(" ")
        return [_scalar(item.strip(" ")) for item in _items(inside)] if inside else []
    return _scalar(text)


def _items(inside: str) -> list[str]:
    """The items of a list, at the commas that stand outside of quotes."""
    items = _ITEM.findall(inside)
    if ",".join(items) != inside:
        raise NotPlain
    return items


def _scalar(text: str) -> Any:
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    if _INTEGER.fullmatch(text):
        return int(text)
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    raise NotPlain
