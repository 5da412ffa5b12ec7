# SPDX-License-Identifier: Apache-2.0
"""Which files of a dataset repository make up which split, by the conventions of the Hugging Face Hub.

What the card of the dataset (the YAML on top of README.md) says under `configs` counts first. Else names decide: shards
`data/train-00000-of-00002.parquet`, then a word in file names, then one in folder names; else every file is `train`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from nemo_gym._data.hub import HubError
from nemo_gym._data.hub_rows import kind_of

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"(?:^|.*/)data/(?P<split>\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]+")
_CARD = re.compile(r"\A﻿?---\s*\n(?P<yaml>.*?)^---\s*$", re.M | re.S)
# Words stand apart from others by anything that is no letter: train_1.jsonl, my-train.jsonl, but not trainer.jsonl.
_NO_LETTER = r"[-._ 0-9]"


def is_data_file(path: str) -> bool:
    """Whether rows can be read from a file of this name; hidden files are no data."""
    hidden = any(part.startswith((".", "__")) for part in PurePosixPath(path).parts)
    return not hidden and kind_of(path) is not None


def splits_of(repo_id: str, paths: Sequence[str], card: str = "") -> dict[str, list[str]]:
    """The files of every split, in order; HubError if the card leaves open which."""
    config = _config(repo_id, card)
    folder = str(config.get("data_dir") or "").strip("/")
    if "data_files" in config:
        return _by_card(repo_id, config["data_files"], folder, paths)
    inside = [path for path in paths if is_data_file(path) and (not folder or path.startswith(f"{folder}/"))]
    return _by_names(inside)


def _config(repo_id: str, card: str) -> Mapping[str, Any]:
    """The one configuration of a card that is meant when none is named."""
    found = _CARD.match(card)
    if found is None:
        return {}
    try:
        header = yaml.safe_load(found["yaml"])
    except yaml.YAMLError as error:
        raise HubError(
            f"the card of {repo_id!r} (README.md) is not valid YAML: {' '.join(str(error).split())}\n"
            "hint: download the files that you need by their names, with --artifact"
        ) from error
    configs = header.get("configs") if isinstance(header, dict) else None
    known = [one for one in configs or () if isinstance(one, dict)]
    chosen = [one for one in known if one.get("default")] or [
        one for one in known if one.get("config_name") == "default"
    ]
    if not chosen and len(known) > 1:
        names = ", ".join(repr(one.get("config_name")) for one in known)
        raise HubError(
            f"the dataset {repo_id!r} has several configurations and no default: {names}.\n"
            "hint: download the files that you need by their names, with --artifact"
        )
    return next(iter(chosen or known), {})


def _by_card(repo_id: str, data_files: Any, folder: str, paths: Sequence[str]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    for split, pattern in _patterns(data_files):
        matches = re.compile(_regex(f"{folder}/{pattern}" if folder else pattern))
        found = [path for path in paths if matches.fullmatch(path) and kind_of(path) is not None]
        if not found:
            raise HubError(
                f"the card of {repo_id!r} (README.md) says that split {split!r} is in {pattern!r}, "
                "but no data file has such a name"
            )
        known = splits.setdefault(split, [])
        known += [path for path in found if path not in known]
    return splits


def _patterns(data_files: Any) -> Iterable[tuple[str, str]]:
    """Split and pattern of every entry, in any of the forms that a card may have."""
    if isinstance(data_files, Mapping):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, path = (
            (entry.get("split", "train"), entry.get("path")) if isinstance(entry, Mapping) else ("train", entry)
        )
        for pattern in path if isinstance(path, list) else [path]:
            yield str(split), str(pattern).removeprefix("./")


def _regex(pattern: str) -> str:
    """A wildcard pattern as a regular expression: `*` stays in its folder, `**` does not."""
    translated = ""
    for token in re.findall(r"\*\*/?|\*|\?|\[[^]]*]|[^*?[]+|\[", pattern):
        if token.startswith("**"):
            translated += "(?:.*/)?" if token.endswith("/") else ".*"
        elif token in "*?":
            translated += "[^/]*" if token == "*" else "[^/]"
        else:
            is_set = token.startswith("[") and token.endswith("]")
            translated += token.replace("[!", "[^") if is_set else re.escape(token)
    return translated


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
