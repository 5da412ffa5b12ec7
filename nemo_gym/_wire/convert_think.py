# SPDX-License-Identifier: Apache-2.0
"""Reasoning inside plain text: closed `<think>` blocks. One that never closes is text, because its end is unknown."""

import re
from collections.abc import Iterable

_BLOCK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


def wrap(thoughts: Iterable[str]) -> str:
    """Every thought in a block of its own."""
    return "".join(f"<think>{thought}</think>" for thought in thoughts)


def parse(content: str) -> tuple[list[str], str]:
    """The thoughts in `content`, and `content` without them."""
    return _BLOCK.findall(content), _BLOCK.sub("", content)
