# SPDX-License-Identifier: Apache-2.0
"""Which files of a dataset repository make up which split, by the conventions of the Hugging Face Hub.

`configs` in the dataset's card (the YAML at the top of README.md) takes precedence. Otherwise names decide: shards
`data/train-00000-of-00002.parquet`, then a word in file names, then one in folder names; else every file is `train`.

The card is untrusted, so nothing here may take long, whatever it says. Scalars stay texts: YAML's numbers, dates and
merges have pitfalls of their own.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from nemo_gym._data.hub import HubError
from nemo_gym._data.hub_rows import read_kind
from nemo_gym._util.json_shapes import as_list, as_mapping, as_text

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"(?:^|.*/)data/(?P<split>\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]+")
# Words are delimited by anything but letters: train_1.jsonl, my-train.jsonl, but not trainer.jsonl.
_NO_LETTER = r"[-._ 0-9]"
Pattern = tuple[str, str]
"""A split, and the pattern of its files."""
_LONGEST_CARD = 1 << 19
_MOST_PATTERNS = 10_000
_LONGEST_PATTERN = 1024
# Every wildcard pattern is compared with every file: about a microsecond each.
_MOST_COMPARISONS = 10_000_000
_LONGEST_NAME = 100
_BY_NAME_HINT = "hint: download the files you need by name, with --artifact"
_WILDCARD = re.compile(r"[*?[]")
_MOST_QUOTED = 80


def is_data_file(path: str) -> bool:
    """Return whether rows can be read from a file of this name; hidden files are not data."""
    hidden = any(part.startswith((".", "__")) for part in PurePosixPath(path).parts)
    return not hidden and read_kind(path) is not None


def assign_splits(repo_id: str, paths: Sequence[str], card: str = "") -> dict[str, list[str]]:
    """Return the files of every split, in order; raise HubError if the card is ambiguous or has a bad split name."""
    config = find_config(repo_id, card)
    folder = (as_text(config.get("data_dir")) or "").strip("/")
    if "data_files" in config:
        return _split_by_card(repo_id, config["data_files"], folder, paths)
    inside = [path for path in paths if is_data_file(path) and (not folder or path.startswith(f"{folder}/"))]
    return {require_split_name(repo_id, split): files for split, files in _split_by_names(inside).items()}


def _split_by_card(repo_id: str, data_files: Any, folder: str, paths: Sequence[str]) -> dict[str, list[str]]:
    splits: dict[str, dict[str, None]] = {}
    patterns = read_patterns(repo_id, data_files)
    if folder:
        patterns = [(split, f"{folder}/{pattern}") for split, pattern in patterns]
    data = [path for path in paths if read_kind(path) is not None]
    for (split, pattern), found in match_files(repo_id, patterns, data):
        if not found:
            raise HubError(
                f"the card of {repo_id!r} (README.md) says that split {split!r} is in {pattern!r}, "
                "but no data file has such a name"
            )
        splits.setdefault(split, {}).update(dict.fromkeys(found))
    return {split: [*files] for split, files in splits.items()}


def _split_by_names(paths: Sequence[str]) -> dict[str, list[str]]:
    sharded: dict[str, list[str]] = {}
    for path in paths:
        if found := _SHARD.fullmatch(path):
            sharded.setdefault(found["split"], []).append(path)
    if sharded:
        known = [split for split in _WORDS if split in sharded]
        return {split: sharded[split] for split in [*known, *sorted(sharded.keys() - set(known))]}
    for where in (r"(?:.*/)?(?:[^/]*{s})?{w}{s}[^/]*", r"(?:.*/)?(?:[^/]*{s})?{w}(?:{s}[^/]*)?/.*"):
        named = {}
        for split, words in _WORDS.items():
            name = re.compile(where.format(s=_NO_LETTER, w=f"(?:{'|'.join(words)})"))
            if matching := [path for path in paths if name.fullmatch(path)]:
                named[split] = matching
        if named:
            return named
    return {"train": list(paths)} if paths else {}


def explain_bad_card(repo_id: str, problem: str) -> HubError:
    """Return the error for a card that cannot be used."""
    return HubError(f"the card of {repo_id!r} (README.md) {problem}.\n{_BY_NAME_HINT}")


def find_config(repo_id: str, card: str) -> Mapping[str, Any]:
    """Return the configuration that a card means by default; an empty one if it has none."""
    header = _load_header(repo_id, card)
    known = [one for one in as_list(as_mapping(header).get("configs")) if isinstance(one, dict)]
    chosen = [one for one in known if str(one.get("default")).lower() == "true"]
    if not chosen:
        chosen = [one for one in known if one.get("config_name") == "default"]
    if not chosen and len(known) > 1:
        names = [_require_text(repo_id, one.get("config_name"), "the name of a configuration") for one in known[:20]]
        named = ", ".join(map(repr, names)) + (", …" if len(known) > len(names) else "")
        raise HubError(f"the dataset {repo_id!r} has several configurations and no default: {named}.\n{_BY_NAME_HINT}")
    return next(iter(chosen or known), {})


def read_patterns(repo_id: str, data_files: Any) -> list[Pattern]:
    """Return the split and pattern of every entry of `data_files`, in any form that a card may have."""
    patterns = list[Pattern]()
    for split, pattern in _entries(data_files):
        if len(patterns) == _MOST_PATTERNS:
            raise explain_bad_card(repo_id, f"names more than {_MOST_PATTERNS:,} patterns of files")
        split = require_split_name(repo_id, _require_text(repo_id, split, "the name of a split"))
        patterns.append((split, _require_text(repo_id, pattern, f"the path of split {split!r}").removeprefix("./")))
    return patterns


def require_split_name(repo_id: str, name: str) -> str:
    """Return `name`; raise HubError unless it can be the name of a file in any folder."""
    is_plain = name.isprintable() and not name.startswith(".") and not any(sign in name for sign in "/\\")
    if is_plain and 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME:
        return name
    raise HubError(
        f"the dataset {repo_id!r} names a split {name[:_MOST_QUOTED]!r}, which cannot name a file: it must have at "
        f"most {_LONGEST_NAME} characters, no separators or control characters, and no leading dot.\n{_BY_NAME_HINT}"
    )


def match_files(repo_id: str, patterns: Sequence[Pattern], paths: Sequence[str]) -> Iterator[tuple[Pattern, list[str]]]:
    """Yield every pattern with the `paths` that it matches, in order."""
    n_wild = sum(1 for _, pattern in patterns if _WILDCARD.search(pattern))
    if n_wild * len(paths) > _MOST_COMPARISONS:
        raise explain_bad_card(repo_id, f"names {n_wild:,} patterns with wildcards, too many for {len(paths):,} files")
    known = set(paths)
    split_paths = [(path, path.split("/")) for path in paths] if n_wild else []
    for split, pattern in patterns:
        if _WILDCARD.search(pattern):
            matches = compile_pattern(pattern)
            yield (split, pattern), [path for path, parts in split_paths if matches(parts)]
        else:
            yield (split, pattern), [pattern] if pattern in known else []


def compile_pattern(pattern: str) -> Callable[[Sequence[str]], bool]:
    """Return a function that matches the parts of a path: `*` stays in its folder, `**` stands for any folders.

    Its time grows at most with the product of both lengths: of several `**`, only the last one is ever retried.
    """
    # Next to other characters, `**` ends one part and begins another with any folders in between, or acts as `*`.
    readings = (pattern, re.sub(r"(?<=[^/*])\*\*+(?=[^/*])", "*", pattern))
    apart = [re.sub(r"(?<=[^/*])\*\*+", "*/**", re.sub(r"\*\*+(?=[^/*])", "**/*", one)) for one in readings]
    variants = [_compile_parts(text) for text in dict.fromkeys(apart)]
    return lambda parts: any(_matches(variant, parts) for variant in variants)


def _compile_parts(pattern: str) -> list[Callable[[str], Any] | None]:
    """Return a matcher for each part of a pattern; None for `**`."""
    parts = list[Callable[[str], Any] | None]()
    for part in pattern.split("/"):
        if part == "**":
            if not parts or parts[-1] is not None:
                parts.append(None)
        else:
            parts.append(re.compile(fnmatch.translate(part)).match)
    return parts


def _matches(pattern: Sequence[Callable[[str], Any] | None], parts: Sequence[str]) -> bool:
    at = 0
    part = 0
    after_wildcard: int | None = None
    taken = 0
    """How many parts all up to the last `**` take."""
    while part < len(parts):
        if at < len(pattern) and (matcher := pattern[at]) is None:
            at += 1
            after_wildcard = at
            taken = part
        elif at < len(pattern) and matcher is not None and matcher(parts[part]):
            at += 1
            part += 1
        elif after_wildcard is None:
            return False
        else:  # let the last `**` take one more part
            at = after_wildcard
            taken += 1
            part = taken
    return all(matcher is None for matcher in pattern[at:])


def _load_header(repo_id: str, card: str) -> Any:
    lines = card.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return None
    text = "\n".join(lines[1:end])
    if len(text) > _LONGEST_CARD:
        raise explain_bad_card(repo_id, f"has more than {_LONGEST_CARD:,} characters of YAML")
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:500]
        raise explain_bad_card(repo_id, f"is not valid YAML: {problem}") from error
    except RecursionError as error:
        raise explain_bad_card(repo_id, "is nested too deeply") from error


def _entries(data_files: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(data_files, Mapping):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    if not isinstance(data_files, list):
        data_files = [data_files]
    for entry in data_files:
        split = "train"
        path = entry
        if isinstance(entry, Mapping):
            split = entry.get("split", "train")
            path = entry.get("path")
        if not isinstance(path, list):
            path = [path]
        for pattern in path:
            yield split, pattern


def _require_text(repo_id: str, value: Any, what: str) -> str:
    if not isinstance(value, str):
        # Not shown: a list may refer to itself, or to others many times over.
        raise explain_bad_card(repo_id, f"has no text for {what}, but a {type(value).__name__}")
    if len(value) > _LONGEST_PATTERN:
        raise explain_bad_card(repo_id, f"has more than {_LONGEST_PATTERN:,} characters for {what}")
    return value
