# SPDX-License-Identifier: Apache-2.0
"""The card of a dataset (the YAML on top of README.md): which patterns of files it names for which split.

Whoever made the dataset wrote it, so nothing here may take long, whatever it says. Scalars stay texts: numbers, dates
and merges of YAML have pitfalls of their own.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from nemo_gym._data.hub import HubError

Pattern = tuple[str, str]
"""A split, and the pattern of its files."""

_LONGEST_CARD = 1 << 19
_MOST_PATTERNS = 10_000
_LONGEST_PATTERN = 1024
# Every pattern with a wildcard is compared with every file: about a microsecond each.
_MOST_COMPARISONS = 10_000_000
_LONGEST_NAME = 100
_BY_NAME_HINT = "hint: download the files that you need by their names, with --artifact"
_WILDCARD = re.compile(r"[*?[]")
_SHOWN = 80


def bad_card(repo_id: str, problem: str) -> HubError:
    """Return the error for a card that cannot be used."""
    return HubError(f"the card of {repo_id!r} (README.md) {problem}.\n{_BY_NAME_HINT}")


def find_config(repo_id: str, card: str) -> Mapping[str, Any]:
    """Return the one configuration of a card that is meant when none is named; an empty one if it has none."""
    header = _load_header(repo_id, card)
    configs = header.get("configs") if isinstance(header, dict) else None
    known = [one for one in configs if isinstance(one, dict)] if isinstance(configs, list) else []
    chosen = [one for one in known if str(one.get("default")).lower() == "true"] or [
        one for one in known if one.get("config_name") == "default"
    ]
    if not chosen and len(known) > 1:
        names = [_require_text(repo_id, one.get("config_name"), "the name of a configuration") for one in known[:20]]
        listed = ", ".join(map(repr, names)) + (", …" if len(known) > len(names) else "")
        raise HubError(f"the dataset {repo_id!r} has several configurations and no default: {listed}.\n{_BY_NAME_HINT}")
    return next(iter(chosen or known), {})


def read_patterns(repo_id: str, data_files: Any) -> list[Pattern]:
    """Return split and pattern of every entry of `data_files`, in any of the forms that a card may have."""
    patterns = list[Pattern]()
    for split, pattern in _entries(data_files):
        if len(patterns) == _MOST_PATTERNS:
            raise bad_card(repo_id, f"names more than {_MOST_PATTERNS:,} patterns of files")
        split = require_split_name(repo_id, _require_text(repo_id, split, "the name of a split"))
        patterns.append((split, _require_text(repo_id, pattern, f"the path of split {split!r}").removeprefix("./")))
    return patterns


def require_split_name(repo_id: str, name: str) -> str:
    """Return `name`; HubError unless it can be the name of a file in any folder."""
    is_plain = name.isprintable() and not name.startswith(".") and not any(sign in name for sign in "/\\")
    if is_plain and 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME:
        return name
    raise HubError(
        f"the dataset {repo_id!r} names a split {name[:_SHOWN]!r}, which is no name for a file: it must have at most "
        f"{_LONGEST_NAME} characters, no separators or control characters, and no dot in front.\n{_BY_NAME_HINT}"
    )


def match_files(repo_id: str, patterns: Sequence[Pattern], paths: Sequence[str]) -> Iterator[tuple[Pattern, list[str]]]:
    """Yield every pattern with the `paths` that it matches, in their order."""
    n_wild = sum(1 for _, pattern in patterns if _WILDCARD.search(pattern))
    if n_wild * len(paths) > _MOST_COMPARISONS:
        raise bad_card(repo_id, f"names {n_wild:,} patterns with wildcards, too many for {len(paths):,} files")
    known, split_paths = set(paths), [(path, path.split("/")) for path in paths] if n_wild else []
    for split, pattern in patterns:
        if _WILDCARD.search(pattern):
            matches = compile_pattern(pattern)
            yield (split, pattern), [path for path, parts in split_paths if matches(parts)]
        else:
            yield (split, pattern), [pattern] if pattern in known else []


def compile_pattern(pattern: str) -> Callable[[Sequence[str]], bool]:
    """Return what tells whether the parts of a path match: `*` stays in its folder, `**` stands for any folders.

    In time that grows with the product of both lengths at most: of several `**` only the last is ever tried again.
    """
    # Beside other signs, `**` ends one part and begins another with any folders in between, or is a `*`.
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
    at, part = 0, 0
    retry: tuple[int, int] | None = None
    while part < len(parts):
        matcher = pattern[at] if at < len(pattern) else _match_nothing
        if matcher is None:
            at += 1
            retry = at, part
        elif matcher(parts[part]):
            at, part = at + 1, part + 1
        elif retry is None:
            return False
        else:  # the last `**` takes one more part
            at, part = retry = retry[0], retry[1] + 1
    return all(matcher is None for matcher in pattern[at:])


def _match_nothing(_: str) -> bool:
    return False


def _load_header(repo_id: str, card: str) -> Any:
    lines = card.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return None
    text = "\n".join(lines[1:end])
    if len(text) > _LONGEST_CARD:
        raise bad_card(repo_id, f"has more than {_LONGEST_CARD:,} characters of YAML")
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:500]
        raise bad_card(repo_id, f"is not valid YAML: {problem}") from error
    except RecursionError as error:
        raise bad_card(repo_id, "is nested too deeply") from error


def _entries(data_files: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(data_files, Mapping):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, path = (
            (entry.get("split", "train"), entry.get("path")) if isinstance(entry, Mapping) else ("train", entry)
        )
        for pattern in path if isinstance(path, list) else [path]:
            yield split, pattern


def _require_text(repo_id: str, value: Any, what: str) -> str:
    if not isinstance(value, str):
        # Not shown: a list may refer to itself, or to others many times over.
        raise bad_card(repo_id, f"has no text for {what}, but a {type(value).__name__}")
    if len(value) > _LONGEST_PATTERN:
        raise bad_card(repo_id, f"has more than {_LONGEST_PATTERN:,} characters for {what}")
    return value
