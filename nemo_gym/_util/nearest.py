# SPDX-License-Identifier: Apache-2.0
"""The closest known names to one that is not known, for "did you mean" hints.

It only compares spellings; which names are known, and how an error is phrased, is the caller's business.
"""

import difflib
from collections.abc import Iterable

CUTOFF = 0.6


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` of the `known` names, best first, that resemble `name` (difflib ratio of at least 0.6)."""
    return difflib.get_close_matches(name, sorted(set(known)), n=limit, cutoff=CUTOFF)


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """A sentence that offers the nearest names, else all of them; empty when nothing is known."""
    known = sorted(set(known))
    if close := nearest(name, known, limit):
        return f"Did you mean {' or '.join(repr(match) for match in close)}?"
    return f"available: {', '.join(repr(match) for match in known)}" if known else ""
