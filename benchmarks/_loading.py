# SPDX-License-Identifier: Apache-2.0
"""What the prepare scripts of benchmarks share: rows from the Hugging Face Hub in, rows of a benchmark out.

A script says which files and columns it reads and makes its rows; a data set whose columns are others than expected is
refused by name rather than prepared wrongly.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.global_config import HF_TOKEN_KEY_NAME, maybe_get_global_config_dict
from nemo_gym.hf_utils import load_hub_rows

Row = dict[str, Any]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_INTEGER = re.compile(r"\s*\$?([-+]?[0-9]{1,18})(?:\.0+)?(?:\^\{?\\circ\}?)?\$?\s*")


class UnexpectedData(GymError):
    """A data set on the Hub is not of the shape that a prepare script knows."""


def hub_rows(repo_id: str, files: str, columns: Iterable[str], revision: str | None = None) -> list[Row]:
    """The rows of the files that match `files`; every row has all `columns`.

    The token is `hf_token` of the config, else what the client library finds: HF_TOKEN, or a login.
    """
    token = (maybe_get_global_config_dict() or {}).get(HF_TOKEN_KEY_NAME)
    rows = load_hub_rows(repo_id, files, token=token, revision=revision)
    wanted = set(columns)
    for number, row in enumerate(rows):
        if missing := sorted(wanted - row.keys()):
            raise UnexpectedData(
                f"row {number} of {files!r} in {repo_id!r} has no column {', '.join(map(repr, missing))}.\n"
                f"its columns: {', '.join(row)}\n"
                "hint: the data set may have changed; an older one is prepared with "
                "`++prepare_script_args.revision=<commit>`"
            )
    return rows


def write_rows(script: str, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write `data/<name>_benchmark.jsonl` beside `script`, whole or not at all; the name is that of its folder."""
    folder = Path(script).resolve().parent
    target = folder / "data" / f"{folder.name}_benchmark.jsonl"
    target.parent.mkdir(exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def integer_text(answer: object) -> str:
    r"""A whole number without leading zeros, thousands separators or units (`025`, `1,000`, `336^\circ`), as text."""
    found = _INTEGER.fullmatch(str(answer).replace(",", ""))
    if found is None:
        raise UnexpectedData(f"{answer!r} is not a whole number, which the answers of this data set are")
    return str(int(found[1]))


def lettered(texts: Iterable[object]) -> list[dict[str, str]]:
    """Options by letter, as the environment `mcqa` has them."""
    return [{letter: str(text)} for letter, text in zip(LETTERS, texts, strict=False)]


def listed(options: Iterable[Mapping[str, str]]) -> str:
    """Options as a prompt shows them, one a line."""
    return "\n".join(f"{letter}: {text}" for option in options for letter, text in option.items())
