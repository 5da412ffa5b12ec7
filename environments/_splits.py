# SPDX-License-Identifier: Apache-2.0
"""What the prepare scripts of environments share: a split is made and written to `data/` beside its script.

A script says which splits there are and how the rows of each are made.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError

Splits = Mapping[str, Callable[[], Iterable[Mapping[str, Any]]]]
"""By name: what makes the rows."""
_BY_DEFAULT = ("validation", "train")


class UnknownSplit(GymError, ValueError):
    """A split that an environment does not have."""


def write_split(script: str, splits: Splits, split: str) -> Path:
    """Write `data/<split>.jsonl` beside `script`, whole or not at all."""
    if split not in splits:
        raise UnknownSplit(f"there is no split {split!r}, but {', '.join(splits)}")
    # To make the rows is what takes time: whatever ends a script meanwhile, there is no file yet.
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in splits[split]())
    target = Path(script).resolve().parent / "data" / f"{split}.jsonl"
    target.parent.mkdir(exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def main(prepare: Callable[[str], Path]) -> None:
    """Write the splits that the command line names, else those that are not there from the start."""
    try:
        for split in sys.argv[1:] or _BY_DEFAULT:
            prepare(split)
    except GymError as error:
        sys.exit(f"Error: {error}")
