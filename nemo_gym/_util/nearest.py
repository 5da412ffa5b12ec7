# SPDX-License-Identifier: Apache-2.0
"""The closest known names to one that is not known, for "did you mean" hints.

Only spellings are compared. A suggestion that is far off misleads more than none, so a name is near only if a typing
error or a missing part explains the difference.
"""

from collections.abc import Iterable, Sequence


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to `limit` of the `known` names: other spellings of `name` first, then names that it is a part of.

    `name` itself is never among them.
    """
    known = sorted({*known} - {name})
    similar = nearest_spelling(name, known, limit)
    words = _normalize(name).strip("_")
    wholes = [one for one in known if one not in similar and len(words) > 2 and _has_part(_normalize(one), words)]
    return [*similar, *sorted(wholes, key=len)][:limit]


def nearest_spelling(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to `limit` of the `known` names that `name` may be a misspelling of, best first."""
    given = _normalize(name)
    found = []
    for one in sorted({*known} - {name}):
        allowed = _allowed_slips(given, _normalize(one))
        if abs(len(given) - len(one)) > allowed:
            continue
        slips = _count_slips(given, _normalize(one))
        if slips <= allowed:
            found.append((slips, one))
    return [one for _, one in sorted(found)[:limit]]


def suggest(name: str, known: Iterable[str], limit: int = 1) -> str:
    """Return a question that offers the names nearest to `name`; see `offer`."""
    return offer(nearest(name, known, limit))


def offer(close: Sequence[str]) -> str:
    """Return ` Did you mean 'x' or 'y'?`, with a space before it; an empty text if there is nothing to offer."""
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """Return a sentence that offers the nearest names, else all of them; empty when nothing is known."""
    known = sorted(set(known))
    if guess := suggest(name, known, limit):
        return guess.strip()
    return f"available: {', '.join(repr(match) for match in known)}" if known else ""


def _normalize(name: str) -> str:
    return name.lower().replace("-", "_")


def _allowed_slips(given: str, known: str) -> int:
    """Return how many slips leave one name recognizable as the other: more for longer names."""
    length = max(len(given), len(known))
    if length < 5:
        # In a short word an extra letter is a slip; a different letter makes a different word.
        return int(len(given) != len(known) or sorted(given) == sorted(known))
    if length < 8:
        return 1
    if length < 16:
        return 2
    return 3


def _has_part(whole: str, part: str) -> bool:
    """Return whether `part` consists of adjacent words of `whole`, or begins it."""
    return whole.startswith(part) or f"_{part}_" in f"_{whole}_"


def _count_slips(one: str, other: str) -> int:
    """Count the letters to insert, delete, replace or swap with the next one to turn `one` into `other`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        two_before = before
        before = row
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
    return row[-1]
