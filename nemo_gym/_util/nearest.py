# SPDX-License-Identifier: Apache-2.0
"""The closest known names to one that is not known, for "did you mean" hints.

It only compares spellings; which names are known, and how an error is phrased, is the caller's business. A suggestion
that is far off misleads more than none, so a name is near only if a slip of the finger or a missing part explains it.
"""

from collections.abc import Iterable, Sequence


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to `limit` of the `known` names: other spellings of `name` first, then names that it is a part of.

    `name` itself is never among them: whoever typed it did not mean another one by it.
    """
    known = sorted({*known} - {name})
    spelt = nearest_spelling(name, known, limit)
    words = _normalize(name).strip("_")
    wholes = [one for one in known if one not in spelt and len(words) > 2 and _has_part(_normalize(one), words)]
    return [*spelt, *sorted(wholes, key=len)][:limit]


def nearest_spelling(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to `limit` of the `known` names that `name` may be a misspelling of, best first."""
    given = _normalize(name)
    found = []
    for one in sorted({*known} - {name}):
        allowed = _allowed_slips(given, _normalize(one))
        slips = _count_slips(given, _normalize(one)) if abs(len(given) - len(one)) <= allowed else allowed + 1
        if slips <= allowed:
            found.append((slips, one))
    return [one for _, one in sorted(found)[:limit]]


def suggest(name: str, known: Iterable[str], limit: int = 1) -> str:
    """Return `offer` of the names nearest to `name`."""
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
    """How many slips leave one name recognizable as the other: the longer it is, the more."""
    length = max(len(given), len(known))
    if length < 5:
        # In a short word a letter too many is a slip, another letter is another word.
        return int(len(given) != len(known) or sorted(given) == sorted(known))
    return 1 if length < 8 else 2 if length < 16 else 3


def _has_part(whole: str, part: str) -> bool:
    """Whether `part` is made of neighbouring words of `whole`, or begins it."""
    return whole.startswith(part) or f"_{part}_" in f"_{whole}_"


def _count_slips(one: str, other: str) -> int:
    """Letters to insert, leave out, replace or swap with their neighbour until `one` is `other`."""
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
