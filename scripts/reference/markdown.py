# SPDX-License-Identifier: Apache-2.0
"""The few forms of Markdown that generated pages are made of."""

import re
from collections.abc import Iterable, Sequence


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Text in its cells is put on one line; nothing else about it is changed."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(write_cell(text) for text in line)} |" for line in lines) + "\n"


def write_cell(text: str) -> str:
    """Return `text` on one line, with what would end a cell escaped; within code nothing does."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def write_code(text: object) -> str:
    """Return `text` as code, or nothing if it is empty."""
    plain = " ".join(str(text).split())
    return f"`` {plain} ``" if "`" in plain else f"`{plain}`" if plain else ""


def write_json(text: str) -> str:
    return f"```json\n{text.rstrip()}\n```\n"
