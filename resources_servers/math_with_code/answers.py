# SPDX-License-Identifier: Apache-2.0
"""Whether an answer is the expected one: the same text, or the same number written in another way."""

import re
from decimal import Decimal
from fractions import Fraction

TOLERANCE = Fraction(1, 10**6)
MAX_CHARS = 1000

_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


def is_same_answer(answer: str, expected: str) -> bool:
    """Return whether `answer` says what `expected` does; numbers that are not whole need not be exact."""
    ours, theirs = _plain(answer), _plain(expected)
    if ours == theirs:
        return ours != ""
    if max(len(ours), len(theirs)) > MAX_CHARS:
        return False
    number, wanted = _number(ours), _number(theirs)
    if number is None or wanted is None:
        return False
    allowed = 0 if wanted.denominator == 1 else TOLERANCE * max(1, abs(wanted))
    return abs(number - wanted) <= allowed


def _plain(text: str) -> str:
    """Return `text` without what only says how it is set."""
    text = text.strip().strip("$").replace("\\,", "").replace("\\!", "").replace("{,}", ",").replace("\u2212", "-")
    text = _THOUSANDS.sub("", text)
    return " ".join(_FRACTION.sub(r"\1/\2", text).rstrip(".").split()).casefold()


def _number(text: str) -> Fraction | None:
    numerator, slash, denominator = text.replace(" ", "").partition("/")
    parts = [numerator, denominator] if slash else [numerator]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    values = [Fraction(Decimal(part)) for part in parts]
    if not slash:
        return values[0]
    return values[0] / values[1] if values[1] else None
