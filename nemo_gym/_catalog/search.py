# SPDX-License-Identifier: Apache-2.0
"""Entries that match a query: by a part of a word, or by a word that is spelt alike."""

import difflib
import re
from collections.abc import Iterable, Iterator

from nemo_gym._catalog.entries import Entry

_ALIKE = 0.70
_SEARCHED = ("Dataset", "Agent", "Agents", "Resources server", "Resources servers", "Datasets")


def search(entries: Iterable[Entry], query: str) -> list[Entry]:
    """The entries in which some field holds or resembles `query`: names first, then the rest, then similar ones."""
    wanted = query.strip().lower()
    ranked = [(_rank(entry, wanted), entry) for entry in entries]
    return [entry for rank, entry in sorted(ranked, key=lambda one: (one[0], one[1].name)) if rank < _NO_MATCH]


_NO_MATCH = 3


def _rank(entry: Entry, wanted: str) -> int:
    fields = [field.lower() for field in _fields(entry)]
    if wanted in fields[0]:
        return 0
    if any(wanted in field for field in fields):
        return 1
    return 2 if any(_alike(wanted, word) for field in fields for word in _words(field)) else _NO_MATCH


def _fields(entry: Entry) -> Iterator[str]:
    yield entry.name
    yield entry.domain or ""
    yield entry.description or ""
    yield str(entry.facts.get("agent_name") or "")
    for key in _SEARCHED:
        value = entry.details.get(key)
        yield " ".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _words(field: str) -> list[str]:
    return [field, *re.split(r"[\s_-]+", field)] if field else []


def _alike(wanted: str, word: str) -> bool:
    matcher = difflib.SequenceMatcher(None, wanted, word)
    return matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE
