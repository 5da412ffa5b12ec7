# SPDX-License-Identifier: Apache-2.0
"""Measure texts: in OpenAI tokens (`o200k_base`), offline and exact, and in the words of their JSON form.

Only the lengths are needed, not the tokens. The tokenizer comes with the extra `data`; without it, only words are
counted.
"""

import functools
import importlib
import re
from collections.abc import Callable

_LONGEST_KEPT = 64
_MOST_KEPT = 200_000
# More than any text has; a sum that reaches it contains a piece that cannot be counted alone.
_NOT_ALONE = 1 << 60
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")
_SPACES = re.compile(" +")

CountTokens = Callable[[str], int]


@functools.cache
def load_tokenizer() -> CountTokens | None:
    """Return a function that counts the tokens of a text; None if the tokenizer is not installed.

    Text that looks like a special token counts as plain text.
    """
    try:
        openai = importlib.import_module("rs_bpe.bpe").openai
    except ImportError:
        return None
    count: CountTokens = openai.o200k_base().count
    return count


class TextLengths:
    """Measures texts word by word and caches the words, several times faster than tokenizing whole texts.

    This is exact, because no token of this vocabulary reaches across a space that has a visible character on both
    sides: its patterns allow a space at the beginning of a token, or among other whitespace.
    """

    def __init__(self, count_tokens: CountTokens | None) -> None:
        self._count = count_tokens or (lambda text: 0)
        self._first = _Words(self._count, before="")
        self._words = _Words(self._count, before=" ")

    def of(self, text: str) -> tuple[int, int]:
        """Count the words and the tokens of a text; words are the pieces between spaces in JSON."""
        first, space, rest = text.partition(" ")
        if not space:
            return 1, _count_safely(self._count, text)
        words = rest.split(" ")
        tokens: int = self._first[first] + sum(map(self._words.__getitem__, words))
        if tokens < _NOT_ALONE:
            return len(words) + 1, tokens
        # With whitespace other than single spaces, only count words separately that can be counted alone.
        first, *words = _BETWEEN_WORDS.split(text)
        tokens = _count_safely(self._count, first)
        for word in words:
            known = self._words[word]
            tokens += known if known < _NOT_ALONE else _count_safely(self._count, f" {word}")
        gaps = len(_SPACES.findall(text)) if "  " in text else text.count(" ")
        return 1 + gaps, tokens


class _Words(dict[str, int]):
    """The token counts of words including what precedes them; `_NOT_ALONE` for words with whitespace at either end."""

    def __init__(self, count: CountTokens, before: str) -> None:
        super().__init__()
        self._count = count
        self._before = before

    def __missing__(self, word: str) -> int:
        number = _NOT_ALONE
        if word and word == word.strip():
            number = _count_safely(self._count, f"{self._before}{word}")
        if len(word) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[word] = number
        return number


def _count_safely(count: CountTokens, text: str) -> int:
    """Count the tokens of any text, even one that is not valid Unicode."""
    try:
        return count(text)
    except UnicodeEncodeError:
        # Half a surrogate pair is not a character: it would be sent as a replacement character.
        return count(text.encode("utf-8", "replace").decode())
