# SPDX-License-Identifier: Apache-2.0
"""Words, sentences and paragraphs, as the instructions count them. All in linear time, and without data to download."""

import re
from collections.abc import Iterator

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?…]++[\"'”’»)\]*_]*+(?=\s|\Z)|[。！？]++[”’」』]*+")
_LAST_WORD = re.compile(r"([\w.]+)\.\Z")
_ABBREVIATED = (
    "mr mrs ms dr prof rev gen col sgt capt lt vs e.g i.e cf fig vol approx",
    "st jr sr etc al no pp dept est inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m u.s u.k",
)
"""What never ends a sentence, and what may."""
_ALWAYS_INSIDE, _AT_TIMES_INSIDE = (frozenset(listed.split()) for listed in _ABBREVIATED)
_DIVIDER = re.compile(r"\*{3}")


def words(text: str) -> list[str]:
    """Return runs of letters, digits and underscores: `don't` is two."""
    return _WORD.findall(text)


def tokens(text: str) -> list[str]:
    """Return words as a reader sees them: `don't` and `well-known` are one each."""
    return _TOKEN.findall(text)


def sentences(text: str) -> list[str]:
    """Sentences end in `.`, `!`, `?` or their like before a space; common abbreviations do not end one."""
    return [sentence for sentence in _sentences(text) if _WORD.search(sentence)]


def divided(text: str) -> list[str]:
    """Return the parts between dividers `***`, without spaces around them."""
    return [part.strip() for part in _DIVIDER.split(text)]


def blocks(text: str) -> list[str]:
    """Paragraphs between empty lines."""
    return [block.strip() for block in re.split(r"\n(?:[ \t]*+\n)+", text.replace("\r\n", "\n")) if block.strip()]


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if not _is_abbreviation(text, start, end):
            yield text[start : end.end()].strip()
            start = end.end()
    yield text[start:].strip()


def _is_abbreviation(text: str, start: int, end: "re.Match[str]") -> bool:
    if end[0] != ".":
        return False
    before = _LAST_WORD.search(text, max(start, end.start() - 20), end.end())
    word = before[1].lower() if before else ""
    following = text[end.end() : end.end() + 3].lstrip()[:1]
    if word in _ALWAYS_INSIDE or (len(word) == 1 and word.isalpha() and before is not None and before[1].isupper()):
        return bool(following)
    # Others may end a sentence as well: then the next one begins with a capital.
    return word in _AT_TIMES_INSIDE and following.islower()
