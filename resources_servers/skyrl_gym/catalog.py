# SPDX-License-Identifier: Apache-2.0
"""List the environments of the installed library, and make rows for them."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.skyrl_gym.app import REFUSED
from resources_servers.skyrl_gym.tasks import MAKERS, make_row

_DESCRIPTIONS = {
    "aime": "A competition problem in one turn: 1 for the right number after `Answer:`, else -1",
    "gsm8k": "A word problem in one turn: 1 for the right number after `####`, else 0",
    "gsm8k_multi_turn": "A word problem with several tries: 1 for the right number, a little for the form",
    "lcb": "A program that must pass all tests of its row: 1 or 0; it runs in a sandbox",
    "search": "A question to answer with the help of searches: 1 or 0; needs a retriever (network) and your own rows",
    "text2sql": "A question about a database, with queries to try: 1, 0, or -1 for a wrong form; SQL runs in a sandbox",
}


def list_environments() -> list[dict[str, str]]:
    """Return the environments of the installed library that this server supports."""
    import skyrl_gym

    names = [name for name in sorted(skyrl_gym.registry) if name not in REFUSED]
    return [{"id": name, "description": _DESCRIPTIONS.get(name, "")} for name in names]


def make_rows(environment_id: str, rows: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows of an environment: generated from the seed, or read from the SkyRL file in the option `path`."""
    _refuse_unknown(environment_id)
    if path := options.get("path"):
        return [convert_row(environment_id, row, seed + n) for n, row in enumerate(_read_file(Path(path))[:rows])]
    if environment_id not in MAKERS:
        raise GymError(
            f"rows of {environment_id!r} cannot be generated: they need its data.\n"
            "hint: name a parquet or JSONL file in SkyRL's format with the option `path`"
        )
    return [make_row(environment_id, seed + number) for number in range(rows)]


def make_config(environment_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with the options as settings of the environment, such as `search_url` and `db_path`."""
    _refuse_unknown(environment_id)
    settings = {name: value for name, value in options.items() if name != "path"}
    return {"server": {"env_configs": {environment_id: settings}}} if settings else {}


def convert_row(environment_id: str, row: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Convert a row from SkyRL's format to ours: the prompt becomes the model's input, the rest stays."""
    fields = {key: value for key, value in row.items() if key not in ("prompt", "env_class")}
    prompt = row.get("prompt")
    if not isinstance(prompt, list):
        raise GymError(
            f"a row has no `prompt` of messages, only {', '.join(map(repr, row))}.\nhint: use SkyRL's row format"
        )
    env_class = row.get("env_class") or environment_id
    return {"responses_create_params": {"input": prompt}, "env_class": env_class, "seed": seed, **fields}


def _refuse_unknown(environment_id: str) -> None:
    if environment_id in REFUSED:
        raise GymError(f"environment {environment_id!r} cannot be played: {REFUSED[environment_id]}")
    if environment_id in _DESCRIPTIONS or ":" in environment_id:  # `module:name` is registered by a module
        return
    close = " or ".join(map(repr, difflib.get_close_matches(environment_id, _DESCRIPTIONS, 3, 0.4)))
    raise GymError(
        f"skyrl-gym has no environment {environment_id!r}.\navailable: {', '.join(_DESCRIPTIONS)}\n"
        f"hint: {f'did you mean {close}?' if close else 'name your own as module:name'}"
    )


def _read_file(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise GymError(f"there is no file {str(path)!r}.\nhint: option `path` names a parquet or JSONL file")
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
