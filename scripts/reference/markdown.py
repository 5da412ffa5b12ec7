# SPDX-License-Identifier: Apache-2.0
"""Write the few Markdown elements that the generated pages need."""

import re
from collections.abc import Iterable, Sequence


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with each cell's text on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(write_cell(text) for text in line)} |" for line in lines) + "\n"


def write_cell(text: str) -> str:
    """Return `text` on one line, with pipes escaped except in code."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def write_code(text: object) -> str:
    """Return `text` as code, or "" if it is empty."""
    plain = " ".join(str(text).split())
    return f"`` {plain} ``" if "`" in plain else f"`{plain}`" if plain else ""


def write_json(text: str) -> str:
    return f"```json\n{text.rstrip()}\n```\n"
