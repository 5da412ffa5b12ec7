# SPDX-License-Identifier: Apache-2.0
"""Splits CSV text into fields.

A field may stand in double quotes; then commas and line ends belong to it, and a doubled quote means one quote.
"""


def read_rows(text: str) -> list[list[str]]:
    """Return the fields of every line; lines without any character are left out."""
    rows: list[list[str]] = []
    fields: list[str] = []
    field, quoted, was_quoted = "", False, False
    position = 0
    while position < len(text):
        char = text[position]
        if quoted:
            if char == '"' and text[position + 1 : position + 2] == '"':
                field += '"'
                position += 1
            elif char == '"':
                quoted = False
            else:
                field += char
        elif char == '"' and not field:
            quoted = was_quoted = True
        elif char == ",":
            fields.append(field)
            field, was_quoted = "", False
        elif char == "\n":
            if fields or field or was_quoted:
                rows.append([*fields, field])
            fields, field, was_quoted = [], "", False
        elif char != "\r":
            field += char
        position += 1
    if quoted:
        raise ValueError("a quote is not closed")
    if fields or field or was_quoted:
        rows.append([*fields, field])
    return rows
