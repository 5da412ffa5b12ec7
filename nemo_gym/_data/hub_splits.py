# SPDX-License-Identifier: Apache-2.0
"""Which files of a dataset repository make up which split, by the conventions of the Hugging Face Hub.

What the card of the dataset (the YAML on top of README.md) says under `configs` counts first. Else names decide: shards
`data/train-00000-of-00002.parquet`, then a word in file names, then one in folder names; else every file is `train`.
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from nemo_gym._data.hub import HubError
from nemo_gym._data.hub_card import find_config, match_files, read_patterns, require_split_name
from nemo_gym._data.hub_rows import kind_of

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"(?:^|.*/)data/(?P<split>\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]+")
# Words stand apart from others by anything that is no letter: train_1.jsonl, my-train.jsonl, but not trainer.jsonl.
_NO_LETTER = r"[-._ 0-9]"


def is_data_file(path: str) -> bool:
    """Whether rows can be read from a file of this name; hidden files are no data."""
    hidden = any(part.startswith((".", "__")) for part in PurePosixPath(path).parts)
    return not hidden and kind_of(path) is not None


def splits_of(repo_id: str, paths: Sequence[str], card: str = "") -> dict[str, list[str]]:
    """Return the files of every split, in order; HubError if the card leaves open which, or names a split badly."""
    config = find_config(repo_id, card)
    given = config.get("data_dir")
    folder = given.strip("/") if isinstance(given, str) else ""
    if "data_files" in config:
        return _by_card(repo_id, config["data_files"], folder, paths)
    inside = [path for path in paths if is_data_file(path) and (not folder or path.startswith(f"{folder}/"))]
    return {require_split_name(repo_id, split): files for split, files in _by_names(inside).items()}


def _by_card(repo_id: str, data_files: Any, folder: str, paths: Sequence[str]) -> dict[str, list[str]]:
    splits: dict[str, dict[str, None]] = {}
    patterns = read_patterns(repo_id, data_files)
    if folder:
        patterns = [(split, f"{folder}/{pattern}") for split, pattern in patterns]
    data = [path for path in paths if kind_of(path) is not None]
    for (split, pattern), found in match_files(repo_id, patterns, data):
        if not found:
            raise HubError(
                f"the card of {repo_id!r} (README.md) says that split {split!r} is in {pattern!r}, "
                "but no data file has such a name"
            )
        splits.setdefault(split, {}).update(dict.fromkeys(found))
    return {split: [*files] for split, files in splits.items()}


def _by_names(paths: Sequence[str]) -> dict[str, list[str]]:
    sharded: dict[str, list[str]] = {}
    for path in paths:
        if found := _SHARD.fullmatch(path):
            sharded.setdefault(found["split"], []).append(path)
    if sharded:
        return _ordered(sharded)
    for where in (r"(?:.*/)?(?:[^/]*{s})?{w}{s}[^/]*", r"(?:.*/)?(?:[^/]*{s})?{w}(?:{s}[^/]*)?/.*"):
        named = {split: [path for path in paths if _has_word(where, words, path)] for split, words in _WORDS.items()}
        if any(named.values()):
            return {split: found for split, found in named.items() if found}
    return {"train": list(paths)} if paths else {}


def _has_word(where: str, words: tuple[str, ...], path: str) -> bool:
    word = f"(?:{'|'.join(words)})"
    return re.fullmatch(where.format(s=_NO_LETTER, w=word), path) is not None


def _ordered(splits: dict[str, list[str]]) -> dict[str, list[str]]:
    """Train, validation, test, then the others."""
    known = [split for split in _WORDS if split in splits]
    return {split: splits[split] for split in [*known, *sorted(set(splits) - set(known))]}
