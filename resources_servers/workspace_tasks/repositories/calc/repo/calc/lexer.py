# SPDX-License-Identifier: Apache-2.0
"""Splits an expression into numbers, names and signs."""

SIGNS = "+-*/^(),"


def split(text: str) -> list[str]:
    """Return the parts of an expression."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char.isspace():
            position += 1
            continue
        end = position + 1
        if char.isdigit() or char == ".":
            while end < len(text) and (text[end].isdigit() or text[end] == "."):
                end += 1
        elif char.isalpha() or char == "_":
            while end < len(text) and (text[end].isalnum() or text[end] == "_"):
                end += 1
        elif char not in SIGNS:
            raise ValueError(f"{char!r} at position {position} has no meaning")
        parts.append(text[position:end])
        position = end
    return parts
